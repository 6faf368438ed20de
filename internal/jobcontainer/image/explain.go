package image

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// failedExchange is an error with what the exchange saw, which the client's error does not contain.
type failedExchange struct {
	err        error
	basic      bool
	retryAfter time.Duration
}

func (e *failedExchange) Error() string { return e.err.Error() }
func (e *failedExchange) Unwrap() error { return e.err }

func (e *exchange) failed(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &failedExchange{err: err, basic: e.basic, retryAfter: e.retryAfter}
}

// retryDelay says whether an error may be gone a moment later, and when to try again.
func retryDelay(err error, attempt int) (time.Duration, bool) {
	delays := []time.Duration{500 * time.Millisecond, 2 * time.Second}
	if attempt >= len(delays) {
		return 0, false
	}
	reason, _ := classify(err)
	switch reason {
	case Unreachable, RegistryFailed:
		return delays[attempt], true
	case RateLimited:
		var seen *failedExchange
		if errors.As(err, &seen) && seen.retryAfter > 0 && seen.retryAfter <= 5*time.Second {
			return seen.retryAfter, true
		}
	}
	return 0, false
}

// classify finds the reason of an error of look, and a detail for the controller's log. It uses nothing of an error's text, which
// may contain what a registry wrote, or a URL with a token.
func classify(err error) (Reason, string) {
	if reason, detail, ok := classifyOwn(err); ok {
		return reason, detail
	}
	var status *transport.Error
	if errors.As(err, &status) {
		return classifyStatus(status), fmt.Sprintf("status %d", status.StatusCode)
	}
	var (
		unknown     *net.DNSError
		op          *net.OpError
		certificate *tls.CertificateVerificationError
		notTLS      tls.RecordHeaderError
		alert       tls.AlertError
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		invalid     x509.CertificateInvalidError
		scheme      *schemeError
	)
	switch {
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid):
		return CertificateInvalid, "certificate not trusted"
	case errors.As(err, &notTLS), errors.As(err, &alert):
		return CertificateInvalid, "no TLS"
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return Unreachable, "no such host"
	case errors.As(err, &unknown):
		return Unreachable, "DNS does not respond"
	case errors.Is(err, syscall.ECONNREFUSED):
		return Unreachable, "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Unreachable, "connection closed"
	case errors.As(err, &op):
		return Unreachable, "no connection"
	case errors.Is(err, http.ErrSchemeMismatch):
		return CertificateInvalid, "no TLS"
	case errors.As(err, &scheme): // of several errors the least telling
		return AddressRefused, scheme.Error()
	}
	return ResponseInvalid, "a response that is not understood"
}

func classifyOwn(err error) (reason Reason, detail string, ok bool) {
	var (
		variants *noVariant
		artifact *notImage
		limit    *limitError
		address  *addressError
		panicked *panicError
		proxy    *proxyError
	)
	switch {
	case errors.Is(err, errTimedOut):
		return TimedOut, "", true
	case errors.Is(err, errNoTurn), errors.Is(err, errQueueFull):
		return Busy, err.Error(), true
	case errors.As(err, &variants):
		return PlatformMissing, "", true
	case errors.As(err, &artifact):
		return NotAnImage, artifact.why, true
	case errors.As(err, &limit):
		return ResponseInvalid, limit.what, true
	case errors.As(err, &address):
		return AddressRefused, address.Error(), true
	case errors.As(err, &proxy):
		return Unreachable, proxy.Error(), true
	case errors.Is(err, errSize):
		return ResponseInvalid, errSize.Error(), true
	case errors.As(err, &panicked):
		return ResponseInvalid, panicked.detail, true
	}
	return "", "", false
}

func classifyStatus(err *transport.Error) Reason {
	switch {
	case err.StatusCode == http.StatusTooManyRequests:
		return RateLimited
	case err.StatusCode == http.StatusUnauthorized, err.StatusCode == http.StatusForbidden:
		return CredentialsRefused
	case err.StatusCode == http.StatusNotFound && err.Request != nil && strings.HasPrefix(err.Request.URL.Path, "/v2/") && err.Request.URL.Path != "/v2/":
		return NotFound
	case err.StatusCode >= http.StatusInternalServerError, err.StatusCode == http.StatusRequestTimeout:
		return RegistryFailed
	}
	return ResponseInvalid
}

// explain makes the error of a caller. Errors that are not about the image, such as that of the caller's context, stay as they are.
func explain(err error, image string, name imagename.Name, credentials bool, timeout time.Duration) error {
	if errors.Is(err, errClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	reason, detail := classify(err)
	if reason == CredentialsRefused && !credentials {
		reason = CredentialsMissing
	}
	e := explainReason(reason, detail, err, image, name, timeout)
	e.Detail = detailOf(err, detail)
	return e
}

func explainReason(reason Reason, detail string, err error, image string, name imagename.Name, timeout time.Duration) *Error {
	const pull = "Image '%[1]s' could not be pulled: "
	if layer := (*layerError)(nil); errors.As(err, &layer) {
		if e := explainLayer(layer, reason, image, name, pull, timeout); e != nil {
			return e
		}
	}
	switch reason {
	case PlatformMissing:
		var variants *noVariant
		errors.As(err, &variants)
		return platformMissing(image, name, variants.wanted, variants.found)
	case NotFound:
		return failure(reason, image, name, "Image '%[1]s' does not exist in registry '%[2]s'. Check its name and its tag.")
	case CredentialsMissing:
		return failure(reason, image, name, pull+"it does not exist, or it is private and no credentials were given for registry '%[2]s'.")
	case CredentialsRefused:
		return failure(reason, image, name, pull+"registry '%[2]s' refused the credentials. Check the user name and the password, and that they may read this image.")
	case NotAnImage:
		return failure(reason, image, name, "Image '%[1]s' cannot be run: %[3]s.", detail)
	case TimedOut:
		return failure(reason, image, name, pull+"registry '%[2]s' did not respond within %[3]s. Run the job again later.", timeout)
	case RateLimited:
		return explainLimit(err, image, name, pull)
	case Unreachable:
		return failure(reason, image, name, pull+"registry '%[2]s' is unreachable: %[3]s.", detail)
	case AddressRefused:
		return failure(reason, image, name, pull+"registry '%[2]s' has an address, or refers to one, that this runner pool does not permit. "+
			"An administrator can permit the registry in the pool.")
	case CertificateInvalid:
		return failure(reason, image, name, pull+"the connection to registry '%[2]s' is not secure: %[3]s.", detail)
	case RegistryFailed:
		return failure(reason, image, name, pull+"registry '%[2]s' failed with %[3]s. Run the job again later.", detail)
	case Busy:
		return failure(reason, image, name, pull+"too many images are being looked up for this account. Run the job again later.")
	}
	return failure(ResponseInvalid, image, name, pull+"registry '%[2]s' sent %[3]s.", responseDetail(err, detail))
}

func explainLimit(err error, image string, name imagename.Name, pull string) *Error {
	var seen *failedExchange
	wait := time.Duration(0)
	if errors.As(err, &seen) {
		wait = seen.retryAfter
	}
	when := "later"
	if wait > 0 {
		when = "in " + wait.String()
	}
	e := failure(RateLimited, image, name, pull+"registry '%[2]s' limits the number of requests (429). Run the job again %[3]s; "+
		"credentials may raise the limit.", when)
	e.RetryAfter = wait
	return e
}

// responseDetail keeps what the controller knows of its own code out of a job's log.
func responseDetail(err error, detail string) string {
	var panicked *panicError
	if errors.As(err, &panicked) {
		return "a response that is not understood"
	}
	return detail
}
