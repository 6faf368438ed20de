package image_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

func TestMain(m *testing.M) { os.Exit(registrytest.Run(m.Run)) }

const (
	secret  = "s3cret-of-ann"
	timeout = 15 * time.Second // that of the resolver
	shared  = timeout / 3      // that of mirrors together
)

var (
	amd64 = image.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = image.Platform{OS: "linux", Architecture: "arm64"}
)

// clock is moved by tests alone. Delays between attempts, which are at most 2 s, pass at once.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	waits  []wait
	delays []time.Duration
}

type wait struct {
	until time.Time
	fired chan time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := wait{c.now.Add(d), make(chan time.Time, 1)}
	if d <= 2*time.Second {
		c.delays = append(c.delays, d)
		w.fired <- w.until
		return w.fired
	}
	c.waits = append(c.waits, w)
	return w.fired
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	rest := c.waits[:0]
	for _, w := range c.waits {
		if w.until.After(c.now) {
			rest = append(rest, w)
			continue
		}
		w.fired <- c.now
	}
	c.waits = rest
}

func newResolver(t *testing.T, c *clock, options image.Options) *image.Resolver {
	t.Helper()
	options.Now, options.After = c.Now, c.After
	r := image.New(options)
	t.Cleanup(r.Close)
	return r
}

// plain is a policy that permits these hosts on loopback without TLS.
func plain(t *testing.T, hosts ...string) imagename.Policy {
	t.Helper()
	var registries []string
	for _, host := range hosts {
		registries = append(registries, "http://"+host)
	}
	policy, err := imagename.ParsePolicy(nil, registries)
	require.NoError(t, err)
	return policy
}

func credentials(user, password, server string) *jobcontainer.Credentials {
	return &jobcontainer.Credentials{Username: user, Password: password, Server: server}
}

type outcome struct {
	resolved image.Resolved
	err      error
}

// start resolves in the background.
func start(t *testing.T, r *image.Resolver, query image.Query) <-chan outcome {
	t.Helper()
	done := make(chan outcome, 1)
	ctx := await.Context(t)
	go func() {
		resolved, err := r.Resolve(ctx, query)
		done <- outcome{resolved, err}
	}()
	return done
}

// fails resolves, and checks the reason and the sentence, and that nothing secret is in the error.
func fails(t *testing.T, r *image.Resolver, query image.Query, reason image.Reason, sentence string) *image.Error {
	t.Helper()
	return failed(t, await.Receive(t, start(t, r, query), "the end of the resolution of "+query.Image).err, query, reason, sentence)
}

func failed(t *testing.T, err error, query image.Query, reason image.Reason, sentence string) *image.Error {
	t.Helper()
	var problem *image.Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, reason, problem.Reason, "%s (%s)", err, problem.Detail)
	require.Equal(t, strings.ReplaceAll(sentence, "IMAGE", query.Image), problem.Error())
	require.NotContains(t, problem.Error()+problem.Detail, secret)
	require.NotContains(t, problem.Error(), "\n")
	return problem
}

func succeeds(t *testing.T, r *image.Resolver, query image.Query) image.Resolved {
	t.Helper()
	got := await.Receive(t, start(t, r, query), "the resolution of "+query.Image)
	require.NoError(t, got.err)
	return got.resolved
}

// postgres is an index of two platforms, with different commands.
func postgres(t *testing.T) v1.ImageIndex {
	return registrytest.Index(t, map[string]v1.Image{
		"linux/amd64": registrytest.Image(t, "linux/amd64", v1.Config{
			Entrypoint: []string{"docker-entrypoint.sh"}, Cmd: []string{"postgres"}, Env: []string{"PGDATA=/data"}, User: "postgres",
			ExposedPorts: map[string]struct{}{"5432/tcp": {}}, Volumes: map[string]struct{}{"/data": {}}, StopSignal: "SIGINT",
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "pg_isready"}, Interval: time.Second},
		}),
		"linux/arm64": registrytest.Image(t, "linux/arm64", v1.Config{Cmd: []string{"postgres-arm"}}),
	})
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(await.Context(t))
}
