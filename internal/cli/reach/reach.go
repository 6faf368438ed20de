package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Problem names the usual reasons for which a connection fails; others are named by the library.
func Problem(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // the URL is in the caller's sentence
	}
	var host *net.DNSError
	var certificate *tls.CertificateVerificationError
	var network net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &host):
		return "unknown host " + host.Name
	case errors.As(err, &certificate):
		return "its certificate is not trusted (" + certificate.Err.Error() + ")"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	}
	return err.Error()
}

// ClusterError is a request that a cluster's API refused or did not answer.
type ClusterError struct {
	text  string
	cause error
}

// Error says what failed, why, and what to do.
func (e *ClusterError) Error() string { return e.text }

// Unwrap gives the API's own error.
func (e *ClusterError) Unwrap() error { return e.cause }

// Cluster reports that something failed at a cluster's API, such as "reading pool linux". It returns nil for no error.
func Cluster(doing string, err error) error {
	var clusterError *ClusterError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.As(err, &clusterError):
		return fmt.Errorf("%s: %w", doing, err)
	}
	return &ClusterError{doing + ": " + ClusterProblem(err), err}
}

// NoSuchKind reports whether the cluster does not serve the kind, as opposed to a missing object.
func NoSuchKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// ClusterProblem says why a cluster's API refused a request, or did not answer it, and what to do.
func ClusterProblem(err error) string {
	const others = "--kubeconfig or --context"
	var status apierrors.APIStatus
	var request *url.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return "the cluster does not accept your credentials. Log in again, or choose others with " + others
	case apierrors.IsForbidden(err) && errors.As(err, &status):
		return "not allowed: " + strings.TrimSuffix(status.Status().Message, ".") + ". `kubectl auth can-i --list` shows what you are allowed to do"
	case NoSuchKind(err):
		return "the cluster does not have this kind. Install the chart, or choose another cluster with " + others
	case apierrors.IsNotFound(err):
		return "not found"
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return "the cluster's API is overloaded or restarting. Try again"
	case errors.As(err, &request):
		return "cannot reach the cluster at " + origin(request.URL) + ": " + Problem(err) + ". Check that it is running, or choose another with " + others
	}
	return err.Error()
}

// origin is a URL without its path.
func origin(text string) string {
	at, err := url.Parse(text)
	if err != nil || at.Host == "" {
		return text
	}
	return at.Scheme + "://" + at.Host
}
