package agent

import (
	"context"
	"time"
)

// awaitSocketEvery is how often a supervisor looks for the socket that its job needs.
const awaitSocketEvery = 20 * time.Millisecond

// awaitSocket returns false if ctx ends first. The socket is another container's, which may still be pulling its image.
func (s *supervisor) awaitSocket(ctx context.Context) bool {
	if s.AwaitSocket == "" || exists(s.AwaitSocket) {
		return true
	}
	s.Log.Info("waiting for another container of the pod", "socket", s.AwaitSocket)
	look := time.NewTicker(awaitSocketEvery)
	defer look.Stop()
	for !exists(s.AwaitSocket) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
