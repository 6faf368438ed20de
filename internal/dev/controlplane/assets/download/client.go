package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Errors of a transfer.
var (
	// ErrStalled reports a server that sent no byte for Client.Stall.
	ErrStalled = errors.New("the download stalled")
	// ErrDowngrade reports a redirect from https to http.
	ErrDowngrade = errors.New("redirected from https to http")
	// errRestart reports a part that does not fit what the server has; it is removed.
	errRestart = errors.New("the server's file has changed")
)

// StatusError is a response other than the expected one.
type StatusError struct{ Code int }

func (e StatusError) Error() string {
	return fmt.Sprintf("the server responded with status %d (%s)", e.Code, http.StatusText(e.Code))
}

// interrupted is a connection that broke while a body was read: reason enough to resume at once.
type interrupted struct{ error }

func (e interrupted) Unwrap() error { return e.error }

const (
	maxText     = 1 << 20
	maxFile     = 1 << 30 // the largest program is a tenth of this
	maxAttempts = 4
)

// Client downloads files.
type Client struct {
	// HTTP should come from NewHTTP, whose redirects are safe.
	HTTP *http.Client
	// Stall is how long a server may send nothing.
	Stall time.Duration
	// Meter shows the progress.
	Meter *Meter
}

// NewHTTP returns a client that follows redirects, but never from https to http. Without a transport it uses one that
// obeys the environment's proxies.
func NewHTTP(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:              http.ProxyFromEnvironment,
			ForceAttemptHTTP2:  true,
			DisableCompression: true, // checksums and ranges are of the file as it is stored
			IdleConnTimeout:    30 * time.Second,
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(request *http.Request, via []*http.Request) error {
		if via[len(via)-1].URL.Scheme == "https" && request.URL.Scheme != "https" {
			return ErrDowngrade
		}
		if len(via) >= 10 {
			return errors.New("more than 10 redirects")
		}
		return nil
	}}
}

// Text returns the content of a small file. ctx bounds it.
func (c *Client) Text(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("preparing the request: %w", err)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, StatusError{response.StatusCode}
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxText))
	if err != nil {
		return nil, cause(ctx, err)
	}
	return data, nil
}

// File downloads address to path, which gets its name only when its checksum is want. A transfer that breaks is resumed;
// what was received when File fails stays in path.part for the next call, except after a wrong checksum.
func (c *Client) File(ctx context.Context, address, path string, mode os.FileMode, want Checksum) error {
	p := part{path: path + ".part"}
	defer c.Meter.done()
	for attempt := 1; ; attempt++ {
		before := p.size()
		err := c.transfer(ctx, address, p)
		if err == nil {
			break
		}
		broken := errors.As(err, &interrupted{}) && p.size() > before // without progress the next attempt is no better
		if attempt == maxAttempts || ctx.Err() != nil || !broken && !errors.Is(err, errRestart) {
			return err
		}
	}
	if err := verify(p.path, want); err != nil {
		if errors.Is(err, ErrChecksum) {
			err = errors.Join(err, p.remove())
		}
		return err
	}
	return p.publish(path, mode)
}

// transfer makes one request, and appends to the part what it brings.
func (c *Client) transfer(parent context.Context, address string, p part) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	watchdog := time.AfterFunc(c.Stall, func() { cancel(fmt.Errorf("%w: no data for %s", ErrStalled, c.Stall)) })
	defer watchdog.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("preparing the request: %w", err)
	}
	offset, validator := p.resumable(Redacted(address))
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		request.Header.Set("If-Range", validator)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return cause(ctx, err)
	}
	defer response.Body.Close()
	start, total, err := place(response, offset)
	switch {
	case errors.Is(err, errRestart):
		return errors.Join(err, p.remove())
	case err != nil:
		return err
	case start == total: // complete, only never verified
		return nil
	case start == 0:
		if err := p.begin(origin{URL: Redacted(address), Validator: validatorOf(response.Header)}); err != nil {
			return err
		}
	}
	return c.receive(ctx, response.Body, p, start, total, watchdog)
}

// place says where in the part the body of a response belongs, and the size of the whole file (-1: unknown).
func place(response *http.Response, offset int64) (start, total int64, err error) {
	if offset > 0 {
		switch response.StatusCode {
		case http.StatusPartialContent:
			var first, last, size int64
			n, _ := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size)
			if n != 3 || first != offset || last != size-1 || size <= offset {
				return 0, 0, errRestart
			}
			return first, size, nil
		case http.StatusRequestedRangeNotSatisfiable:
			var size int64
			if n, _ := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes */%d", &size); n != 1 || size != offset {
				return 0, 0, errRestart
			}
			return size, size, nil
		}
	}
	if response.StatusCode != http.StatusOK {
		return 0, 0, StatusError{response.StatusCode}
	}
	return 0, response.ContentLength, nil
}

// validatorOf is what If-Range may carry: a strong ETag, else the date.
func validatorOf(header http.Header) string {
	if tag := header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	return header.Get("Last-Modified")
}

func (c *Client) receive(ctx context.Context, body io.Reader, p part, start, total int64, watchdog *time.Timer) error {
	file, err := p.open(start)
	if err != nil {
		return err
	}
	defer file.Close()
	c.Meter.begin(start, total)
	buffer := make([]byte, 128<<10)
	for size := start; ; {
		n, err := body.Read(buffer)
		if n > 0 {
			watchdog.Reset(c.Stall)
			if size += int64(n); size > maxFile {
				return errors.Join(fmt.Errorf("the file is larger than %d bytes", int64(maxFile)), p.remove())
			}
			if _, err := file.Write(buffer[:n]); err != nil {
				return fmt.Errorf("writing a download: %w", err)
			}
			c.Meter.at(size)
		}
		switch {
		case errors.Is(err, io.EOF):
			return closeFile(file)
		case err != nil && ctx.Err() != nil:
			return cause(ctx, err)
		case err != nil:
			return interrupted{fmt.Errorf("the connection broke: %w", err)}
		}
	}
}

func closeFile(file *os.File) error {
	if err := file.Close(); err != nil {
		return fmt.Errorf("writing a download: %w", err)
	}
	return nil
}

// Redacted is an address without the password that a mirror's may have.
func Redacted(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "an invalid URL"
	}
	return parsed.Redacted()
}

// cause is the reason for which a context ended, or else err without the URL, which the caller reports.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
