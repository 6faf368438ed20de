package image_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

const mib = 1 << 20

// hostile is a registry with an image whose front a test makes hostile.
type hostile struct {
	registry *registrytest.Registry
	front    *registrytest.Front
	now      *clock
	resolver *image.Resolver
	query    image.Query
}

func newHostile(t *testing.T) *hostile {
	registry := registrytest.Shared(t)
	registry.Push(t, "acme/app:1", postgres(t))
	h := &hostile{registry: registry, front: registrytest.StartFront(t, registry), now: newClock()}
	h.resolver = newResolver(t, h.now, image.Options{})
	h.query = image.Query{
		Tenant: "acme", Image: h.front.Host + "/acme/app:1", Platform: amd64, Policy: plain(t, h.front.Host),
		Credentials: credentials("ann", secret, h.front.Host),
	}
	return h
}

var stages = []registrytest.Stage{registrytest.Version, registrytest.Tag, registrytest.Digest, registrytest.Blob}

// hang lets a request wait until it is canceled, and says when it has come.
func hang(reached chan<- struct{}, send string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if send != "" {
			fmt.Fprint(w, send)
			w.(http.Flusher).Flush()
		}
		select {
		case reached <- struct{}{}:
		case <-r.Context().Done():
		}
		<-r.Context().Done()
	}
}

func TestResolve_EndsItsWaitForARegistryThatHangs(t *testing.T) {
	h := newHostile(t)
	late := "Image 'IMAGE' could not be pulled: registry '" + h.front.Host + "' did not respond within 15s. Run the job again later."
	for _, stage := range stages {
		for _, send := range []string{"", `{"schemaVersion":2,`} {
			reached := make(chan struct{})
			h.front.Replace(stage, hang(reached, send))
			done := start(t, h.resolver, h.query)
			await.Receive(t, reached, "the request of the stage "+string(stage))
			require.Empty(t, done)
			h.now.advance(timeout)
			problem := failed(t, await.Receive(t, done, "the end of the wait at the stage "+string(stage)).err, h.query, image.TimedOut, late)
			require.True(t, problem.Temporary())
			h.front.Replace(stage, nil)
		}
	}
	succeeds(t, h.resolver, h.query)
}

func TestResolve_EndsItsWaitForATokenServiceThatHangs(t *testing.T) {
	tokens := registrytest.StartTokens(t, nil, "acme/app")
	registry := registrytest.Start(t, registrytest.Options{Tokens: tokens})
	reached := make(chan struct{})
	tokens.Replace(hang(reached, ""))
	now := newClock()
	r := newResolver(t, now, image.Options{})
	query := image.Query{Tenant: "acme", Image: registry.Host + "/acme/app", Platform: amd64, Policy: plain(t, registry.Host, tokens.Host)}
	done := start(t, r, query)
	await.Receive(t, reached, "the request of a token")
	now.advance(timeout)
	failed(t, await.Receive(t, done, "the end of the wait").err, query, image.TimedOut,
		"Image 'IMAGE' could not be pulled: registry '"+registry.Host+"' did not respond within 15s. Run the job again later.")
}

// A listener that accepts and says nothing: TLS never begins.
func TestResolve_EndsItsWaitForAConnectionWithoutTLS(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- connection
		}
	}()
	policy, err := imagename.ParsePolicy(nil, []string{listener.Addr().String()})
	require.NoError(t, err)
	now := newClock()
	r := newResolver(t, now, image.Options{})
	query := image.Query{Tenant: "acme", Image: listener.Addr().String() + "/app", Platform: amd64, Policy: policy}
	done := start(t, r, query)
	defer await.Receive(t, accepted, "the connection").Close()
	now.advance(timeout)
	failed(t, await.Receive(t, done, "the end of the wait").err, query, image.TimedOut,
		"Image 'IMAGE' could not be pulled: registry '"+listener.Addr().String()+"' did not respond within 15s. Run the job again later.")
}

func TestResolve_ASlowRegistryDelaysNoOtherTenant(t *testing.T) {
	h := newHostile(t)
	resolver := newResolver(t, h.now, image.Options{PerTenant: 2, Total: 3})
	reached := make(chan struct{})
	slow := registrytest.Shared(t)
	slowFront := registrytest.StartFront(t, slow)
	slowFront.Replace(registrytest.Version, hang(reached, ""))
	var hanging []<-chan outcome
	for n := range 6 {
		query := image.Query{Tenant: "slow", Image: fmt.Sprintf("%s/acme/app:%d", slowFront.Host, n), Platform: amd64, Policy: plain(t, slowFront.Host)}
		hanging = append(hanging, start(t, resolver, query))
	}
	for range 2 {
		await.Receive(t, reached, "the slow tenant's requests")
	}
	succeeds(t, resolver, h.query)
	for n := range hanging {
		require.Empty(t, hanging[n], "the slow ones wait still")
	}
	// Time passes until all of them have ended: at least two ran, and others had no turn.
	outcomes := map[image.Reason]int{}
	for _, done := range hanging {
		passTimeUntilDone(t, h.now, done)
		var problem *image.Error
		require.ErrorAs(t, await.Receive(t, done, "the end of a slow resolution").err, &problem)
		outcomes[problem.Reason]++
		if problem.Reason == image.Busy {
			require.Contains(t, problem.Error(), "too many images are being looked up for this account. Run the job again later.")
		}
	}
	require.Equal(t, 6, outcomes[image.TimedOut]+outcomes[image.Busy], outcomes)
	require.GreaterOrEqual(t, outcomes[image.TimedOut], 2)
}

// passTimeUntilDone ends waits until there is an outcome. A wait that is ended may be followed by another: that of a turn by that of a
// registry.
func passTimeUntilDone(t *testing.T, now *clock, done <-chan outcome) {
	t.Helper()
	require.Eventually(t, func() bool {
		now.advance(timeout)
		return len(done) > 0
	}, await.Limit, time.Millisecond)
}

func TestResolve_RefusesWhatRegistriesMayNotSend(t *testing.T) {
	h := newHostile(t)
	other := registrytest.Image(t, "linux/amd64", v1.Config{Cmd: []string{"another"}})
	manifest, err := other.RawManifest()
	require.NoError(t, err)
	config, err := other.RawConfigFile()
	require.NoError(t, err)
	h.registry.Push(t, "acme/app:other", other)
	size := fmt.Sprintf(`"size":%d`, len(config))
	resized := bytes.Replace(manifest, []byte(size), []byte(`"size":7`), 1)
	require.NotEqual(t, manifest, resized)
	send := func(body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
	}
	large := send([]byte(`{"schemaVersion":2,"manifests":[],"x":"` + strings.Repeat("x", mib) + `"}`))
	endless := func(w http.ResponseWriter, r *http.Request) {
		block := bytes.Repeat([]byte(" "), 1<<15)
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	loop := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"?again", http.StatusFound)
	}
	header := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<17)) }
	challenge := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, _ = io.CopyN(zip, zeros{}, 8*mib)
	require.NoError(t, zip.Close())
	zipped := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	}
	const (
		much    = "more than 1048576 bytes in one response"
		strange = "a response that is not understood"
	)
	for _, test := range []struct {
		name    string
		stage   registrytest.Stage
		handler http.HandlerFunc
		sent    string
	}{
		{"another manifest", registrytest.Digest, send(manifest), strange},
		{"another config", registrytest.Blob, send(config), strange},
		{"a short config", registrytest.Blob, send([]byte(`{}`)), strange},
		{"a config of another size", registrytest.Tag, send(resized), "a config of another size than its manifest says"},
		{"a large index", registrytest.Tag, large, much},
		{"a large manifest", registrytest.Digest, large, much},
		{"a large config", registrytest.Blob, large, much},
		{"an endless index", registrytest.Tag, endless, much},
		{"an endless config", registrytest.Blob, endless, much},
		{"a loop at the version", registrytest.Version, loop, "more than 8 redirects"},
		{"a loop at the tag", registrytest.Tag, loop, "more than 8 redirects"},
		{"a loop at the manifest", registrytest.Digest, loop, "more than 8 redirects"},
		{"a loop at the config", registrytest.Blob, loop, "more than 8 redirects"},
		{"a large header", registrytest.Tag, header, strange},
		{"a challenge without a realm", registrytest.Version, challenge, strange},
		{"a compressed config", registrytest.Blob, zipped, strange},
	} {
		h.front.Replace(test.stage, test.handler)
		fails(t, h.resolver, h.query, image.ResponseInvalid, "Image 'IMAGE' could not be pulled: registry '"+h.front.Host+"' sent "+test.sent+".")
		h.front.Replace(test.stage, nil)
	}
	// Of the version only the status counts: no more of an endless one is read than of any response.
	h.front.Replace(registrytest.Version, endless)
	succeeds(t, h.resolver, h.query)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Each of the responses is small enough, and together they are not, or they have no end.
func TestResolve_LimitsTheRequestsForOneImage(t *testing.T) {
	h := newHostile(t)
	n := 0
	h.front.Replace(registrytest.Tag, func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token/%d",service="x",scope="%d"`, h.front.Host, n, n))
		w.WriteHeader(http.StatusUnauthorized)
	})
	h.front.Replace(registrytest.Version, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, h.front.Host))
		w.WriteHeader(http.StatusUnauthorized)
	})
	h.front.Replace(registrytest.Other, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"x", http.StatusTemporaryRedirect)
	})
	fails(t, h.resolver, h.query, image.ResponseInvalid, "Image 'IMAGE' could not be pulled: registry '"+h.front.Host+"' sent more than 8 redirects.")

	h.front.Replace(registrytest.Other, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token":"x"}`) })
	fails(t, h.resolver, h.query, image.CredentialsRefused,
		"Image 'IMAGE' could not be pulled: registry '"+h.front.Host+"' refused the credentials. Check the user name and the password, and that they may read this image.")
	require.Less(t, len(h.front.Requests()), 60)
}

func TestResolve_RegistriesThatFail(t *testing.T) {
	h := newHostile(t)
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			http.Error(w, `{"errors":[{"code":"X","message":"`+secret+`\n::error::"}]}`, code)
		}
	}
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	begin := "Image 'IMAGE' could not be pulled: registry '" + h.front.Host + "' "
	for _, test := range []struct {
		handler  http.HandlerFunc
		reason   image.Reason
		sentence string
		wait     time.Duration
		delays   []time.Duration
	}{
		{status(503), image.RegistryFailed, "failed with status 503. Run the job again later.", 0, []time.Duration{500 * time.Millisecond, 2 * time.Second}},
		{status(500), image.RegistryFailed, "failed with status 500. Run the job again later.", 0, []time.Duration{500 * time.Millisecond, 2 * time.Second}},
		{status(429), image.RateLimited, "limits the number of requests (429). Run the job again later; credentials may raise the limit.", 0, nil},
		{status(429, "Retry-After", "90"), image.RateLimited, "limits the number of requests (429). Run the job again in 1m30s; credentials may raise the limit.", 90 * time.Second, nil},
		{status(429, "Retry-After", "Thu, 26 Nov 2026 12:02:00 GMT"), image.RateLimited, "limits the number of requests (429). Run the job again in 2m0s; credentials may raise the limit.", 2 * time.Minute, nil},
		{status(429, "Retry-After", "99999999999999"), image.RateLimited, "limits the number of requests (429). Run the job again later; credentials may raise the limit.", 0, nil},
		{status(429, "Retry-After", "2"), image.RateLimited, "limits the number of requests (429). Run the job again in 2s; credentials may raise the limit.", 2 * time.Second, []time.Duration{2 * time.Second, 2 * time.Second}},
		{status(418), image.ResponseInvalid, "sent status 418.", 0, nil},
		{status(403), image.CredentialsRefused, "refused the credentials. Check the user name and the password, and that they may read this image.", 0, nil},
		{abort, image.Unreachable, "is unreachable: connection closed.", 0, []time.Duration{500 * time.Millisecond, 2 * time.Second}},
	} {
		for _, stage := range stages {
			h.now.delays = nil
			h.front.Replace(stage, test.handler)
			sentence := begin + test.sentence
			problem := fails(t, h.resolver, h.query, test.reason, sentence)
			require.Equal(t, test.wait, problem.RetryAfter)
			require.Equal(t, test.delays, h.now.delays, "%s at %s", test.sentence, stage)
			h.front.Replace(stage, nil)
		}
	}
	failures := 0
	h.front.Replace(registrytest.Tag, func(w http.ResponseWriter, r *http.Request) {
		if failures++; failures < 3 {
			status(502)(w, r)
			return
		}
		h.front.Pass(w, r)
	})
	succeeds(t, h.resolver, h.query)
	require.Equal(t, 3, failures, "a failure that passes costs a moment")
}

// boundAddress refuses connections: its port is taken, and nothing listens on it.
func boundAddress(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(socket) })
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	address, err := syscall.Getsockname(socket)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", address.(*syscall.SockaddrInet4).Port)
}

func TestResolve_AnUnreachableRegistry(t *testing.T) {
	host := boundAddress(t)
	dns := registrytest.StartDNS(t, nil)
	now := newClock()
	r := newResolver(t, now, image.Options{DNS: dns.Resolver()})
	query := image.Query{Tenant: "acme", Image: host + "/app", Platform: amd64, Policy: plain(t, host)}
	fails(t, r, query, image.Unreachable, "Image 'IMAGE' could not be pulled: registry '"+host+"' is unreachable: connection refused.")
	query.Image = "registry.acme.example/app"
	fails(t, r, query, image.Unreachable, "Image 'IMAGE' could not be pulled: registry 'registry.acme.example' is unreachable: no such host.")
	require.Equal(t, []string{"registry.acme.example"}, dns.Queries(), "and no name of the cluster was tried")

	dns.Silence()
	done := start(t, r, query)
	passTimeUntilDone(t, now, done)
	failed(t, await.Receive(t, done, "the end of the wait").err, query, image.TimedOut,
		"Image 'IMAGE' could not be pulled: registry 'registry.acme.example' did not respond within 15s. Run the job again later.")
}

func TestResolve_TLS(t *testing.T) {
	registry := registrytest.Shared(t)
	registry.Push(t, "acme/app:1", postgres(t))
	front := registrytest.StartFront(t, registry)
	server := httptest.NewTLSServer(front)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	policy, err := imagename.ParsePolicy(nil, []string{host, front.Host})
	require.NoError(t, err)
	query := image.Query{Tenant: "acme", Image: host + "/acme/app:1", Platform: amd64, Policy: policy}
	fails(t, newResolver(t, newClock(), image.Options{}), query, image.CertificateInvalid,
		"Image 'IMAGE' could not be pulled: the connection to registry '"+host+"' is not secure: certificate not trusted.")
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	r := newResolver(t, newClock(), image.Options{RootCAs: roots})
	succeeds(t, r, query)

	query.Image = front.Host + "/acme/app:1"
	front.Forget()
	fails(t, r, query, image.CertificateInvalid, "Image 'IMAGE' could not be pulled: the connection to registry '"+front.Host+"' is not secure: no TLS.")
	require.Empty(t, front.Requests(), "a registry that the pool does not name with http:// gets no request without TLS")
}

func TestResolve_CallersShareARequest(t *testing.T) {
	h := newHostile(t)
	reached := make(chan struct{})
	release := make(chan struct{})
	h.front.Replace(registrytest.Tag, func(w http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		await.OrEnd(t, release)
		h.front.Pass(w, r)
	})
	first := start(t, h.resolver, h.query)
	await.Receive(t, reached, "the request")
	var all []<-chan outcome
	for range 20 {
		all = append(all, start(t, h.resolver, h.query))
	}
	require.Eventually(t, func() bool { return h.resolver.Callers() == 21 }, await.Limit, time.Millisecond)
	close(release)
	want := await.Receive(t, first, "the first resolution")
	require.NoError(t, want.err)
	for _, done := range all {
		require.Equal(t, want, await.Receive(t, done, "a resolution"))
	}
	require.Equal(t, []string{"GET tag", "GET digest", "GET blob"}, h.front.Requests())
}

// A tag may have moved since a request began: a caller that comes later asks again.
func TestResolve_NoCallerJoinsAnOldRequest(t *testing.T) {
	h := newHostile(t)
	reached := make(chan struct{})
	var once sync.Once
	release := make(chan struct{})
	h.front.Replace(registrytest.Tag, func(w http.ResponseWriter, r *http.Request) {
		first := false
		once.Do(func() { first = true })
		if first {
			reached <- struct{}{}
			await.OrEnd(t, release)
		}
		h.front.Pass(w, r)
	})
	first := start(t, h.resolver, h.query)
	await.Receive(t, reached, "the request")
	h.now.advance(4 * time.Second)
	succeeds(t, h.resolver, h.query)
	require.Empty(t, first)
	close(release)
	require.NoError(t, await.Receive(t, first, "the first resolution").err)
}

func TestResolve_ACallerThatLeavesAffectsNoOther(t *testing.T) {
	h := newHostile(t)
	reached, ended := make(chan struct{}), make(chan struct{})
	h.front.Replace(registrytest.Tag, func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done() // bounded: the client's context ends it
		close(ended)
	})
	leave := make(chan func(), 2)
	results := make(chan error, 2)
	for range 2 {
		ctx, cancel := contextOf(t)
		leave <- cancel
		go func() {
			_, err := h.resolver.Resolve(ctx, h.query)
			results <- err
		}()
	}
	await.Receive(t, reached, "the request")
	require.Eventually(t, func() bool { return h.resolver.Callers() == 2 }, await.Limit, time.Millisecond)
	await.Receive(t, leave, "a caller")()
	require.Error(t, await.Receive(t, results, "the first caller"))
	require.Empty(t, results)
	select {
	case <-ended:
		require.Fail(t, "the request of the other caller ended")
	default:
	}
	await.Receive(t, leave, "a caller")()
	require.Error(t, await.Receive(t, results, "the second caller"))
	await.Receive(t, ended, "the end of a request that nobody waits for")
}

func TestClose_EndsRequests(t *testing.T) {
	h := newHostile(t)
	reached := make(chan struct{})
	h.front.Replace(registrytest.Tag, hang(reached, ""))
	done := start(t, h.resolver, h.query)
	await.Receive(t, reached, "the request")
	await.Return(t, h.resolver.Close, "the end of the resolver")
	require.ErrorContains(t, await.Receive(t, done, "the resolution").err, "the resolver is closed")
	_, err := h.resolver.Resolve(t.Context(), h.query)
	require.ErrorContains(t, err, "the resolver is closed")
}
