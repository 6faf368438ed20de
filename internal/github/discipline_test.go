package github

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func refusal(t *testing.T, err error) *fleet.RateLimitedError {
	t.Helper()
	var limited *fleet.RateLimitedError
	require.ErrorAs(t, err, &limited)
	return limited
}

const oneRunner = `{"total_count":1,"runners":[{"id":23,"name":"r","status":"online","busy":false}]}`

// CLAIM-11: an installation that fails is asked by one probe at a time, less and less often; the others do not notice. It
// ends with the first answer.
func TestCircuit_CLAIM11_AFailingInstallationIsProbedAndHarmsNoOther(t *testing.T) {
	clock := newClock()
	var broken atomic.Bool
	var asked atomic.Int64
	broken.Store(true)
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/bad/") {
			asked.Add(1)
			if broken.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
		}
		_, _ = w.Write([]byte(oneRunner))
	})
	c := newTestClient(t, f, func(o *Options) { o.Now = clock.read; o.Jitter = func() float64 { return 1 } })
	bad := fleet.Scope{Owner: "bad"}
	for range circuitTrips {
		require.ErrorIs(t, c.ControlRead(t.Context(), 1, bad), fleet.ErrUncertain)
	}
	for range 20 { // everything of it, not only what failed
		limited := refusal(t, c.RemoveRunner(t.Context(), 1, bad, 23))
		require.Equal(t, ResourceCircuit, limited.Resource)
		require.Equal(t, clock.after(1), limited.Until)
	}
	require.Equal(t, int64(circuitTrips), asked.Load())
	require.NoError(t, c.ControlRead(t.Context(), 2, org), "another installation")

	for _, wait := range []int{1, 2, 4, 8, 16, 30, 30} { // only then is it asked again, by one call
		clock.set(clock.after(wait).Add(-time.Millisecond))
		refusal(t, c.ControlRead(t.Context(), 1, bad))
		clock.set(clock.read().Add(time.Millisecond))
		before := asked.Load()
		require.ErrorIs(t, c.ControlRead(t.Context(), 1, bad), fleet.ErrUncertain)
		refusal(t, c.ControlRead(t.Context(), 1, bad))
		require.Equal(t, before+1, asked.Load())
	}
	broken.Store(false)
	clock.set(clock.after(30))
	require.NoError(t, c.ControlRead(t.Context(), 1, bad))
	require.NoError(t, c.ControlRead(t.Context(), 1, bad))
}

// CLAIM-11: while a probe is under way no other request is sent.
func TestCircuit_CLAIM11_OneProbeAtATime(t *testing.T) {
	var c circuit
	now := time.Unix(1_800_000_000, 0)
	for range circuitTrips {
		probe, err := c.enter(now)
		require.NoError(t, err)
		c.leave(probe, resultFailed, now, 0)
	}
	now = now.Add(time.Minute)
	probe, err := c.enter(now)
	require.NoError(t, err)
	require.True(t, probe)
	_, err = c.enter(now)
	require.True(t, refusal(t, err).Until.After(now))
	c.leave(probe, resultUnknown, now, 0) // its caller cancelled: the next one asks
	probe, err = c.enter(now)
	require.NoError(t, err)
	require.True(t, probe)
}

// EXCL-6: a refusal of one call opens nothing: the control read that gives it its meaning has to follow. Neither does a
// cancelled caller.
func TestCircuit_EXCL6_ARefusalIsAnAnswer(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(oneRunner))
	})
	c := newTestClient(t, f, nil)
	for range 3 * circuitTrips {
		require.ErrorIs(t, c.RemoveRunner(t.Context(), 1, org, 23), fleet.ErrForbidden)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 * circuitTrips {
		require.Error(t, c.ControlRead(gone, 1, org))
	}
	require.NoError(t, c.ControlRead(t.Context(), 1, org))
}

// CLAIM-14: mints are paced to the points that GitHub counts without saying: dispatch learns beforehand how many are left
// and when the next becomes free, and removals are never held back.
func TestPace_CLAIM14_MintsArePacedAndRemovalsAreNot(t *testing.T) {
	clock := newClock()
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(mintedBody))
		default:
			_, _ = w.Write([]byte(oneRunner))
		}
	})
	c := newTestClient(t, f, func(o *Options) { o.Now = clock.read; o.Points = 100 })
	mint := func() error {
		_, err := c.Mint(t.Context(), 1, fleet.MintRequest{Scope: org, Name: "bp-x-1", RunnerGroupID: 1, WorkFolder: "_work"})
		return err
	}
	require.NoError(t, mint())
	for left := 17; left > 0; left-- {
		rate, known := c.MintRate(1)
		require.True(t, known)
		require.Equal(t, left, rate.Remaining)
		clock.set(clock.read().Add(100 * time.Millisecond))
		require.NoError(t, mint())
	}
	rate, _ := c.MintRate(1)
	require.Zero(t, rate.Remaining)
	limited := refusal(t, mint())
	require.Equal(t, ResourcePace, limited.Resource)
	require.Equal(t, rate.Reset, limited.Until)
	require.True(t, limited.Until.After(clock.after(55)) && limited.Until.Before(clock.after(62)), "%s", limited.Until)
	for range 5 {
		require.NoError(t, c.RemoveRunner(t.Context(), 1, org, 23))
		require.NoError(t, c.ControlRead(t.Context(), 1, org))
	}
	_, err := listed(t.Context(), c, 1, org)
	require.Equal(t, ResourcePace, refusal(t, err).Resource, "a sweep waits")
	clock.set(limited.Until.Add(2 * time.Second))
	require.NoError(t, mint())
	other, known := c.MintRate(2)
	require.False(t, known && other.Remaining == 0, "another installation has points of its own")

	free := newTestClient(t, f, nil) // a server of one's own has no such limit
	_, known = free.MintRate(1)
	require.False(t, known)
}

// Replicas share a limit without talking: one that is refused halves its pace, once for those that were refused together,
// and takes it back.
func TestPace_HalvesWhenRefusedAndGrowsBack(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := newPace(900)
	require.Equal(t, 900, p.allowed(now))
	p.refused(now)
	p.refused(now)
	require.Equal(t, 450, p.allowed(now))
	require.Equal(t, 540, p.allowed(now.Add(time.Minute)))
	require.Equal(t, 900, p.allowed(now.Add(5*time.Minute)))
	for range 100 {
		now = now.Add(2 * time.Second)
		p.refused(now)
	}
	require.GreaterOrEqual(t, p.allowed(now), 45, "it never stops altogether")
}

// CLAIM-14: in no minute are more let through than allowed, and a request that comes at the announced time is let
// through.
func TestPace_CLAIM14_NeverMoreThanAllowedInAMinute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPace(rapid.IntRange(20, 900).Draw(t, "points"))
		now := time.Unix(1_800_000_000, 0)
		var sent []time.Time
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			var limited *fleet.RateLimitedError
			if err := p.gate(classMint, now); errors.As(err, &limited) {
				now = limited.Until
				if p.gate(classMint, now) != nil {
					t.Fatalf("refused when it was due")
				}
			}
			p.spend(classMint, now)
			sent = append(sent, now)
			points := 0
			for _, at := range sent {
				if now.Sub(at) < 59*time.Second { // a second is counted as a whole
					points += writePoints
				}
			}
			if points > p.most {
				t.Fatalf("%d points in a minute, %d are allowed", points, p.most)
			}
		}
	})
}

// The last tenth of a window is for removals and for interactive reads.
func TestRates_SweepsLeaveTheRestToOthers(t *testing.T) {
	clock := newClock()
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", "500")
		w.Header().Set("X-RateLimit-Reset", clock.at(600))
		w.Header().Set("X-RateLimit-Resource", ResourceCore)
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write([]byte(oneRunner))
	})
	c := newTestClient(t, f, func(o *Options) { o.Now = clock.read })
	require.NoError(t, c.ControlRead(t.Context(), 1, org))
	_, err := listed(t.Context(), c, 1, org)
	require.Equal(t, clock.after(600), refusal(t, err).Until)
	require.NoError(t, c.RemoveRunner(t.Context(), 1, org, 23))
	require.NoError(t, c.ControlRead(t.Context(), 1, org))
}

// One installation's slow GitHub takes its own slots, and sweeps not all of them.
func TestSlots_OneInstallationsSlownessIsItsOwn(t *testing.T) {
	release := make(chan struct{})
	var waiting atomic.Int64
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/slow/") && r.URL.Query().Get("per_page") != "1" {
			waiting.Add(1)
			await.OrEnd(t, release)
		}
		_, _ = w.Write([]byte(oneRunner))
	})
	c := newTestClient(t, f, func(o *Options) { o.MaxConcurrent = 10 })
	slow := fleet.Scope{Owner: "slow"}
	var group sync.WaitGroup
	open := sync.OnceFunc(func() { close(release); await.Return(t, group.Wait, "all calls return") })
	t.Cleanup(open)
	for range 20 {
		group.Go(func() { _, _ = listed(t.Context(), c, 1, slow) })
	}
	require.Eventually(t, func() bool { return waiting.Load() == 2 }, 10*time.Second, time.Millisecond)
	require.NoError(t, c.ControlRead(t.Context(), 1, slow), "removals and control reads have slots that sweeps cannot take")
	require.NoError(t, c.ControlRead(t.Context(), 2, org))
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := listed(short, c, 1, slow)
	require.Equal(t, ResourceConcurrency, refusal(t, err).Resource, "what never left is known to have done nothing")
	require.Equal(t, int64(2), waiting.Load())
	open()
}

// A repeated read sends the ETag: "unchanged" costs nothing, and returns the first response.
func TestETags_UnchangedAnswersAreFree(t *testing.T) {
	var full, unchanged atomic.Int64
	var version atomic.Int64
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		tag := `W/"` + strconv.FormatInt(version.Load(), 10) + `"`
		w.Header().Set("ETag", tag)
		w.Header().Set("X-RateLimit-Resource", ResourceCore)
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(4000-full.Load(), 10))
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10))
		if r.Header.Get("If-None-Match") == tag {
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		full.Add(1)
		_, _ = w.Write([]byte(`{"total_count":1,"runners":[{"id":23,"name":"v` + strconv.FormatInt(version.Load(), 10) + `","status":"online"}]}`))
	})
	c := newTestClient(t, f, nil)
	var free atomic.Int64
	for range 3 {
		list, err := listed(WithFree(t.Context(), func() { free.Add(1) }), c, 1, org)
		require.NoError(t, err)
		require.Equal(t, "v0", list[0].Name)
	}
	require.Equal(t, int64(2), free.Load(), "the caller learns what cost nothing")
	require.Equal(t, []int64{1, 2}, []int64{full.Load(), unchanged.Load()})
	rate, _ := c.RateState(1, ResourceCore)
	require.Equal(t, 3999, rate.Remaining, "the limits are those of the last answer")
	version.Add(1)
	list, err := listed(t.Context(), c, 1, org)
	require.NoError(t, err)
	require.Equal(t, "v1", list[0].Name)
	_, err = listed(t.Context(), c, 2, org)
	require.NoError(t, err)
	require.Equal(t, int64(3), full.Load(), "an installation is answered from what it may read itself")
}

// A call that was redirected has cost something, although what it was led to has not changed.
func TestETags_ARedirectionIsNotFree(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusMovedPermanently)
			return
		}
		w.Header().Set("ETag", `"x"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
		}
	})
	client := &http.Client{Timeout: await.Limit, Transport: &etags{next: http.DefaultTransport, store: newETagStore()}}
	free := 0
	for _, step := range []struct {
		path string
		free int
	}{{"/old", 0}, {"/old", 0}, {"/new", 1}} {
		req, err := http.NewRequestWithContext(WithFree(t.Context(), func() { free++ }), http.MethodGet, f.URL+step.path, nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, step.free, free, step.path)
	}
}

// However much is read, the cache is bounded, and responses that are too long are passed on whole.
func TestETags_KeepsNoMoreThanItsBound(t *testing.T) {
	e := newETagStore()
	at := func(url string) etagKey { return etagKey{1, url} }
	const size = etagLength / 2
	for i := range etagBytes/size + 20 {
		e.put(&kept{etagKey: etagKey{int64(i), "x"}, body: make([]byte, size)})
		require.LessOrEqual(t, e.bytes, etagBytes, "of all installations together")
	}
	require.InDelta(t, etagBytes/size, e.order.Len(), 3)
	require.Len(t, e.byKey, e.order.Len())
	require.Nil(t, e.get(etagKey{0, "x"}))
	require.NotNil(t, e.get(etagKey{etagBytes/size + 19, "x"}))

	// Each runner is asked about at an address of its own, and the answer is mostly header.
	header := http.Header{"X-Github-Request-Id": {strings.Repeat("r", 1000)}}
	for i := range etagBytes / 400 {
		e.put(&kept{etagKey: at("https://api.github.com/orgs/acme/actions/runners?name=" + strconv.Itoa(i)), header: header, body: []byte("{}")})
	}
	require.LessOrEqual(t, e.order.Len()*1000, etagBytes, "headers and addresses count too")

	values := []string{`"z"`, `<x>; rel="next"`, "9"} // of one array, as net/http reads them
	answer := &http.Response{Body: http.NoBody, Header: http.Header{"Etag": values[0:1:1], "Link": values[1:2:2], "X-Github-Request-Id": values[2:3:3]}}
	require.NoError(t, e.keep(at("paged"), answer))
	about := e.get(at("paged")).header
	require.Equal(t, http.Header{"Etag": {`"z"`}, "Link": {`<x>; rel="next"`}}, about, "what was about that one call is not kept")
	require.NotSame(t, &values[0], &about["Etag"][0], "nor is it held through the array")

	long := strings.Repeat("x", etagLength+10)
	f := newForge(t, status(http.StatusOK, long, "ETag", `"y"`))
	resp := &http.Response{Header: http.Header{"Etag": {`"y"`}}, Body: mustGet(t, f.URL+"/long").Body}
	require.NoError(t, e.keep(at("long"), resp))
	defer func() { _ = resp.Body.Close() }()
	got := make([]byte, len(long)+1)
	n, _ := readFull(resp, got)
	require.Equal(t, len(long), n)
	require.Nil(t, e.get(at("long")))
}

func mustGet(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	require.NoError(t, err)
	return resp
}

func readFull(resp *http.Response, into []byte) (n int, err error) {
	for n < len(into) && err == nil {
		var more int
		more, err = resp.Body.Read(into[n:])
		n += more
	}
	return n, err
}

func listed(ctx context.Context, c *Client, installation int64, scope fleet.Scope) (all []fleet.Registration, err error) {
	err = c.ListRunners(ctx, installation, scope, func(r fleet.Registration) bool {
		all = append(all, r)
		return true
	})
	return all, err
}
