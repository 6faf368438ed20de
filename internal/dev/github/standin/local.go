package standin

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Local is a stand-in that listens on a loopback port: what tests use.
type Local struct {
	*Server
	// URL is its address.
	URL string
	// Admin speaks its admin API.
	Admin *AdminClient
	// AppKeyPEM is the App's private key when Start made one, for ghinstallation.
	AppKeyPEM []byte

	http   *http.Server
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Start runs a stand-in on a free loopback port until Close or the end of ctx. It fills in URL, AppID (1) and AppKey
// where opts leaves them empty.
func Start(ctx context.Context, opts Options) (*Local, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the stand-in: %w", err)
	}
	l, err := start(ctx, listener, opts)
	if err != nil {
		_ = listener.Close() // nothing was served on it
	}
	return l, err
}

func start(ctx context.Context, listener net.Listener, opts Options) (*Local, error) {
	l := &Local{URL: "http://" + listener.Addr().String()}
	if opts.URL == "" {
		opts.URL = l.URL
	}
	orDefault(&opts.AppID, 1)
	if opts.AppKey == nil {
		key, encoded, err := GenerateAppKey()
		if err != nil {
			return nil, err
		}
		opts.AppKey, l.AppKeyPEM = key, encoded
	}
	server, err := New(opts)
	if err != nil {
		return nil, err
	}
	l.Server = server
	l.Admin = &AdminClient{URL: l.URL, Token: opts.AdminToken}
	ctx, l.cancel = context.WithCancel(ctx)
	l.http = newHTTPServer(ctx, server)
	l.done.Go(func() { _ = server.Run(ctx) }) // it returns only when ctx ends
	l.done.Go(func() { _ = l.http.Serve(listener) })
	l.done.Go(func() {
		<-ctx.Done()
		_ = l.http.Close()
	})
	return l, nil
}

// Close stops it, waits for its goroutines and saves its state. It may be called twice.
func (l *Local) Close() {
	l.cancel()
	l.done.Wait()
	if err := l.saveState(); err != nil {
		l.log.Error("the state was not saved", "error", err)
	}
}

func newHTTPServer(ctx context.Context, handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for clients that have more open requests than a process may have files
	return &http.Server{
		Protocols: protocols,
		Handler:   handler, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// Serve runs a server on a listener until ctx ends; held polls are answered before it returns. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, server *Server) error {
	front := newHTTPServer(context.WithoutCancel(ctx), server)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		served <- front.Serve(listener)
		cancel()
	})
	err := server.Run(ctx)
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if shut := front.Shutdown(late); shut != nil {
		_ = front.Close() // a client holds a connection: it has had its five seconds
	}
	wg.Wait()
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serving the stand-in: %w", failed))
	}
	return errors.Join(err, server.saveState()) // again: calls were answered until just now
}

// GenerateAppKey makes an App's key: its public part, and the private part in PEM.
func GenerateAppKey() (*rsa.PublicKey, []byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, fmt.Errorf("making the App's key: %w", err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return &key.PublicKey, encoded, nil
}

// ParseAppKey reads the public part of a private or public RSA key in PEM.
func ParseAppKey(data []byte) (*rsa.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("the App's key is not PEM: give the private key file that GitHub (or --generate-key) made")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return &key.PublicKey, nil
	}
	if key, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
		return key, nil
	}
	if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if key, ok := parsed.(*rsa.PrivateKey); ok {
			return &key.PublicKey, nil
		}
	}
	if parsed, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
		if key, ok := parsed.(*rsa.PublicKey); ok {
			return key, nil
		}
	}
	return nil, fmt.Errorf("the App's key is a %q, not an RSA key", block.Type)
}
