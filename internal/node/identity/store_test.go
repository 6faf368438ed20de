package identity

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/certificate"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// slowFiles is a FileStore whose writes do not return before the test lets them.
type slowFiles struct {
	certificate.FileStore

	begun, end chan struct{}
	written    int
}

func (s *slowFiles) Update([]byte, []byte) (*tls.Certificate, error) {
	close(s.begun)
	<-s.end // bounded: the test closes it, or has failed
	s.written++
	return &tls.Certificate{}, nil
}

// NET-5: nothing is written into the directory once the identity is closed, neither by a write that was under way nor by a later one.
func TestStore_NET5_WritesNothingOnceItIsClosed(t *testing.T) {
	files := &slowFiles{begun: make(chan struct{}), end: make(chan struct{})}
	s := &store{FileStore: files}
	updated, closed := make(chan error, 1), make(chan int, 1)
	go func() {
		_, err := s.Update(nil, nil)
		updated <- err
	}()
	await.Receive(t, files.begun, "the write begins")
	go func() {
		s.close()
		closed <- files.written
	}()
	select {
	case <-closed:
		t.Fatal("it is closed while a certificate is being written")
	default:
	}
	close(files.end)
	require.NoError(t, await.Receive(t, updated, "the write ends"))
	require.Equal(t, 1, await.Receive(t, closed, "the store is closed"), "the write had ended")
	_, err := s.Update(nil, nil)
	require.ErrorIs(t, err, errClosed)
	require.Equal(t, 1, files.written)
}
