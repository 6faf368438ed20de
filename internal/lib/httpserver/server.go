package httpserver

import (
	"net/http"
	"time"
)

const (
	// MaxHeader bounds a request's headers, in bytes, to which net/http adds 4 KiB: room for cookies and tokens. Short lines take 25 times
	// their length in memory, so that net/http's default of 1 MiB is 16 MiB for a connection.
	MaxHeader = 32 << 10
	// MaxPublicHeader is for clients that have neither: 640 KiB of memory for a connection, garbage included.
	MaxPublicHeader = 16 << 10

	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// New returns a server whose clients can hold no connection without sending requests, and no more memory for headers than MaxHeader says.
func New(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, MaxHeaderBytes: MaxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
}
