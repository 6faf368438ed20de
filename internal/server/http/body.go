package http

import (
	"errors"
	"io"

	"golang.org/x/sync/semaphore"

	"github.com/bullpen-ci/bullpen/internal/github"
)

// The maximum memory, in bytes, for the bodies of webhooks (TEN-3). Any client of the listener can send one, and the signature is known
// only at its end.
const (
	// smallBody is room enough for a workflow_job; GitHub's installation events list repositories and can be larger.
	smallBody = 64 << 10
	// smallRoom is for all bodies of at most smallBody together, which larger ones cannot take.
	smallRoom = 8 << 20
	// largeRoom is for all larger ones: one of github.MaxWebhookBody, or several smaller ones. One whose length was not announced, which GitHub
	// never sends, has room up to 14 MiB, because it takes what it had beside what it grows to.
	largeRoom = 28 << 20
	// firstPiece is what a body takes before its sender has sent anything.
	firstPiece = 4 << 10
)

// errNoRoom: other bodies take all the memory that bodies may take.
var errNoRoom = errors.New("too many concurrent payloads, retry")

// bodies bounds the memory of the bodies that are being read, all together. It is safe for concurrent use.
type bodies struct{ small, large *semaphore.Weighted }

func newBodies() *bodies {
	return &bodies{small: semaphore.NewWeighted(smallRoom), large: semaphore.NewWeighted(largeRoom)}
}

// body is one that is being read; release gives its memory back.
type body struct {
	in    *bodies
	bytes []byte
	held  *semaphore.Weighted
}

// read reads r, which is bounded by github.MaxWebhookBody, to its end, and writes it to hash. size is the announced size,
// or -1. The memory for it is not taken before the first smallBody bytes have come. The caller releases the body, also
// after an error. The error is errNoRoom when other bodies take all the room.
func (b *bodies) read(r io.Reader, size int64, hash io.Writer) (*body, error) {
	into := &body{in: b}
	if size > smallBody { // no use starting to read one for which there is no room now
		if !b.large.TryAcquire(size + 1) {
			return into, errNoRoom
		}
		b.large.Release(size + 1)
	}
	if err := into.grow(firstPiece); err != nil {
		return into, err
	}
	for {
		if len(into.bytes) == cap(into.bytes) {
			if err := into.grow(nextSize(cap(into.bytes), size)); err != nil {
				return into, err
			}
		}
		n, err := r.Read(into.bytes[len(into.bytes):cap(into.bytes)])
		_, _ = hash.Write(into.bytes[len(into.bytes) : len(into.bytes)+n]) // never fails
		into.bytes = into.bytes[:len(into.bytes)+n]
		if errors.Is(err, io.EOF) {
			return into, nil
		}
		if err != nil {
			return into, err
		}
	}
}

// nextSize doubles. Above smallBody it is all that was announced, because each copy leaves garbage; one byte more finds the end.
func nextSize(now int, size int64) int {
	next := min(2*now, max(now, github.MaxWebhookBody)+1)
	if size >= int64(now) && (size < int64(next) || now >= smallBody) {
		return int(size) + 1
	}
	return next
}

// grow takes the larger memory before it gives back the smaller.
func (b *body) grow(to int) error {
	room := b.in.small
	if to > smallBody+1 {
		room = b.in.large
	}
	if !room.TryAcquire(int64(to)) {
		return errNoRoom
	}
	larger := make([]byte, len(b.bytes), to)
	copy(larger, b.bytes)
	b.release()
	b.bytes, b.held = larger, room
	return nil
}

// release gives the memory back. It may be called again.
func (b *body) release() {
	if b.held != nil {
		b.held.Release(int64(cap(b.bytes)))
	}
	b.bytes, b.held = nil, nil
}
