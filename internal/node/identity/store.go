package identity

import (
	"crypto/tls"
	"errors"
	"sync"

	"k8s.io/client-go/util/certificate"
)

var errClosed = errors.New("the node's certificates are not kept any more")

// store is a FileStore that writes nothing once it is closed. client-go's manager stops without waiting for its goroutine, which could otherwise
// write into a directory that the next owner has taken, or that is being deleted.
type store struct {
	certificate.FileStore

	mu     sync.Mutex
	closed bool
}

// newStore opens the directory, for certificates whose file names begin with the prefix.
func newStore(prefix, dir string) (*store, error) {
	files, err := certificate.NewFileStore(prefix, dir, dir, "", "")
	if err != nil {
		return nil, err
	}
	return &store{FileStore: files}, nil
}

// Update writes a certificate and its key, unless the store is closed.
func (s *store) Update(cert, key []byte) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	return s.FileStore.Update(cert, key)
}

// close waits for a write that is under way, and refuses others.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
