package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// What a registry may make the controller do for one image. The largest manifests and configs in use have some hundred kilobytes.
const (
	maxBody      = 1 << 20 // bytes of one response
	maxBytes     = 4 << 20 // of all responses
	maxHeader    = 64 << 10
	maxRequests  = 24 // without those of layers. A version check, a token and at most four documents are usual
	maxRedirects = 8  // of one request
)

// limitError is a limit that a registry has exceeded.
type limitError struct{ what string }

func (e *limitError) Error() string { return e.what }

// addressError is a request that the policy does not permit. Its text is for the controller's log.
type addressError struct{ what string }

func (e *addressError) Error() string { return e.what }

func refusedAddress(host, address string) error {
	return &addressError{fmt.Sprintf("%s has the address %s", host, address)}
}

// schemeError is a request without TLS to a registry that the pool does not name with http://, or with another scheme than that of a
// mirror's URL. The client tries both for some hosts, so the other's error says more.
type schemeError struct{ what string }

func (e *schemeError) Error() string { return e.what }

// proxyError is a proxy that does not connect to a host.
type proxyError struct{ status int }

func (e *proxyError) Error() string {
	return fmt.Sprintf("the controller's proxy responds with status %d", e.status)
}

// exchange sends the requests for one image, and applies the limits and the policy to each of them, redirects and token services
// included. Its connections are its own: one that a pool may open is of no use to another pool.
type exchange struct {
	transport *http.Transport
	name      imagename.Name
	mirror    *Mirror // of the name's registry, if it is asked instead
	policy    imagename.Policy
	options   *Options

	mu         sync.Mutex
	requests   int
	allowed    int             // requests
	layers     map[string]bool // by digest: those that are asked for
	bytes      int64
	basic      bool          // the last 401 asked for basic authentication
	retryAfter time.Duration // of the last 429
}

func newExchange(name imagename.Name, mirror *Mirror, policy imagename.Policy, options *Options) *exchange {
	e := &exchange{name: name, mirror: mirror, policy: policy, options: options, allowed: maxRequests}
	e.transport = &http.Transport{
		Proxy:                  options.Proxy,
		DialContext:            e.dial,
		TLSClientConfig:        &tls.Config{RootCAs: options.RootCAs, MinVersion: tls.VersionTLS12},
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        4,
		IdleConnTimeout:        options.Timeout,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
			if response.StatusCode != http.StatusOK {
				return &proxyError{response.StatusCode}
			}
			return nil
		},
	}
	return e
}

func (e *exchange) close() { e.transport.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (e *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := e.admit(request); err != nil {
		return nil, err
	}
	request, layer := e.mirrored(request), e.isLayer(request)
	if layer {
		request = ranged(request)
	}
	response, err := e.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if layer {
		unranged(response)
	}
	e.note(response)
	response.Body = &limitedBody{exchange: e, body: response.Body, left: maxBody}
	return response, nil
}

// admit counts a request, and decides on its URL. Its address is decided on when it is dialed.
func (e *exchange) admit(request *http.Request) error {
	if err := e.admitScheme(request.URL); err != nil {
		return err
	}
	if err := e.admitProxied(request); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
	switch {
	case redirects(request) > maxRedirects:
		return &limitError{fmt.Sprintf("more than %d redirects", maxRedirects)}
	case e.requests > e.allowed:
		return &limitError{fmt.Sprintf("more than %d requests for one image", e.allowed)}
	}
	return nil
}

// admitScheme permits requests without TLS to the hosts that the pool names with http://. A mirror has the scheme of its URL alone: the
// pool's policy neither adds to it, nor takes from it.
func (e *exchange) admitScheme(u *url.URL) error {
	plain := "request without TLS to " + u.Host
	switch {
	case e.mirror.owns(u):
		return nil
	case e.mirror != nil && u.Host == e.mirror.URL.Host:
		return &schemeError{fmt.Sprintf("request by %s to %s, whose URL has %s", u.Scheme, u.Host, e.mirror.URL.Scheme)}
	case u.Scheme == "https" || e.policy.PermitsPlain(u.Host):
		return nil
	case e.mirror == nil && u.Host == e.name.Registry:
		return &schemeError{plain}
	}
	return &addressError{plain}
}

// mirrored is a request to a mirror with the registry that it is for, as containerd sends it. Redirects stay as they are, because their
// URLs may be signed.
func (e *exchange) mirrored(request *http.Request) *http.Request {
	if !e.mirror.owns(request.URL) || request.Response != nil || !strings.HasPrefix(request.URL.Path, "/v2/") {
		return request
	}
	request = request.Clone(request.Context())
	query := request.URL.Query()
	query.Set("ns", e.name.Registry)
	request.URL.RawQuery = query.Encode()
	return request
}

// admitProxied checks the addresses of a host that a proxy will connect to. A name that only the proxy can look up is the proxy's
// to permit.
func (e *exchange) admitProxied(request *http.Request) error {
	if e.options.Proxy == nil {
		return nil
	}
	proxy, err := e.options.Proxy(request)
	if err != nil {
		return err
	}
	host := request.URL.Hostname()
	if proxy == nil {
		if e.isProxy(withPort(request.URL)) {
			return refusedAddress(host, "of the proxy")
		}
		return nil
	}
	named := e.mirror.owns(request.URL) || e.policy.Names(request.URL.Host)
	addresses, err := e.options.DNS.LookupNetIP(request.Context(), "ip", absolute(host, named))
	if err != nil {
		var unknown *net.DNSError
		if errors.As(err, &unknown) && unknown.IsNotFound {
			return nil
		}
		return err
	}
	for _, address := range addresses {
		if !mayConnect(host, named, address, e.options.ClusterNetworks) {
			return refusedAddress(host, address.String())
		}
	}
	return nil
}

// dial connects to an address that the policy permits. The check is made for the address of each connection, after the name was
// looked up, so a name whose address changes is checked like any other.
func (e *exchange) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	if e.isProxy(hostport) {
		dialer := net.Dialer{Resolver: e.options.DNS}
		return dialer.DialContext(ctx, network, hostport)
	}
	bare := unbracketed(host)
	named := e.mirror.listens(hostport) || e.policy.Names(hostport) || port == "443" && e.policy.Names(bare) || port == "80" && e.policy.PermitsPlain(bare)
	dialer := net.Dialer{
		Resolver: e.options.DNS,
		ControlContext: func(_ context.Context, _, target string, _ syscall.RawConn) error {
			address, err := netip.ParseAddrPort(target)
			if err != nil || !mayConnect(host, named, address.Addr(), e.options.ClusterNetworks) {
				return refusedAddress(host, target)
			}
			return nil
		},
	}
	return dialer.DialContext(ctx, network, net.JoinHostPort(absolute(host, named), port))
}

// unbracketed is a host as a policy names it: IPv6 addresses have brackets there.
func unbracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// absolute is a host with a dot at its end, so that the search domains of the controller's cluster are not tried for it. Hosts that
// the pool names are looked up as they are.
func absolute(host string, named bool) string {
	if _, err := netip.ParseAddr(host); err == nil || named || host == "localhost" {
		return host
	}
	return strings.TrimSuffix(host, ".") + "."
}

// isProxy reports whether host:port is a configured proxy.
func (e *exchange) isProxy(hostport string) bool {
	if e.options.Proxy == nil {
		return false
	}
	for _, scheme := range []string{"https", "http"} {
		proxy, err := e.options.Proxy(&http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.invalid"}})
		if err == nil && proxy != nil && withPort(proxy) == hostport {
			return true
		}
	}
	return false
}

// withPort is host:port of a URL.
func withPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// note remembers what an error of the client does not contain.
func (e *exchange) note(response *http.Response) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch response.StatusCode {
	case http.StatusUnauthorized:
		e.basic = strings.HasPrefix(strings.ToLower(response.Header.Get("WWW-Authenticate")), "basic")
	case http.StatusTooManyRequests:
		e.retryAfter = retryAfter(response.Header.Get("Retry-After"), e.options.Now())
	}
}

// retryAfter reads seconds or a date (RFC 9110, 10.2.3), at most a day; 0 if there is neither.
func retryAfter(value string, now time.Time) time.Duration {
	const most = 24 * time.Hour
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, most) //nolint:gosec // 32 bits
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now).Round(time.Second), 0), most)
	}
	return 0
}

// limitedBody fails a response that is too large, or with which all are.
type limitedBody struct {
	exchange *exchange
	body     io.ReadCloser
	left     int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, &limitError{fmt.Sprintf("more than %d bytes in one response", maxBody)}
	}
	b.exchange.mu.Lock()
	b.exchange.bytes += int64(n)
	over := b.exchange.bytes > maxBytes
	b.exchange.mu.Unlock()
	if over {
		return 0, &limitError{fmt.Sprintf("more than %d bytes for one image", maxBytes)}
	}
	return n, err
}

func (b *limitedBody) Close() error { return b.body.Close() }
