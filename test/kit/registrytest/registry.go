package registrytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// Options of a registry.
type Options struct {
	// Users are passwords by user name, for basic authentication. Without users every client may pull and push.
	Users map[string]string
	// Tokens make the users get tokens for their repositories instead.
	Tokens *TokenService
}

// Registry is a running registry on loopback, without TLS.
type Registry struct {
	// Host is host:port.
	Host string

	auth authn.Authenticator
	log  string
}

// Start runs a registry until the test ends.
func Start(t testing.TB, options Options) *Registry {
	t.Helper()
	r, child, err := run(t.TempDir(), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		stop(child)
		if t.Failed() {
			text, _ := os.ReadFile(r.log)
			t.Logf("registry:\n%s", text)
		}
	})
	return r
}

// Shared is a registry without authentication that all tests of the package share: starting one takes a busy machine seconds.
func Shared(t testing.TB) *Registry {
	t.Helper()
	sharedOnce.Do(func() {
		dir := filepath.Join(programDir, "shared")
		if errShared = os.MkdirAll(dir, 0o700); errShared == nil {
			shared, sharedChild, errShared = run(dir, Options{})
		}
	})
	require.NoError(t, errShared)
	return shared
}

// run starts a registry whose files are in dir. Another process may take the free port before the registry listens on it, so it tries
// another one.
func run(dir string, options Options) (*Registry, *childproc.Child, error) {
	program, err := program()
	if err != nil {
		return nil, nil, err
	}
	r := &Registry{auth: authn.Anonymous, log: filepath.Join(dir, "log")}
	for user, password := range options.Users {
		r.auth = &authn.Basic{Username: user, Password: password}
	}
	if options.Tokens != nil {
		r.auth = options.Tokens.pusher()
	}
	for range 3 {
		var child *childproc.Child
		if child, err = r.start(program, dir, options); err == nil {
			return r, child, nil
		}
	}
	text, _ := os.ReadFile(r.log)
	return nil, nil, fmt.Errorf("%w\n%s", err, text)
}

func stop(child *childproc.Child) { child.Stop(context.Background(), syscall.SIGTERM, 2*time.Second) }

func (r *Registry) start(program, dir string, options Options) (*childproc.Child, error) {
	var err error
	if r.Host, err = freeAddress(); err != nil {
		return nil, err
	}
	text, err := r.config(dir, options)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	command := exec.Command(program, "serve", config) //nolint:noctx,gosec // stop ends it
	command.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	child, err := childproc.StartLogged(command, r.log, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	if err := r.awaitReady(child); err != nil {
		stop(child)
		return nil, err
	}
	return child, nil
}

func (r *Registry) awaitReady(child *childproc.Child) error {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Host+"/v2/", nil)
		if err != nil {
			return err
		}
		if response, err := await.HTTP.Do(request); err == nil {
			response.Body.Close()
			return nil
		}
		select {
		case <-child.Done():
			return errors.New("the registry exited: " + child.Outcome())
		case <-ctx.Done():
			return errors.New("the registry does not listen")
		case <-ticker.C:
		}
	}
}

func (r *Registry) config(dir string, options Options) (string, error) {
	text := fmt.Sprintf("version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: %s\nhttp:\n  addr: %s\n  secret: test\n",
		filepath.Join(dir, "data"), r.Host)
	switch {
	case options.Tokens != nil:
		auth, err := options.Tokens.config(dir)
		return text + auth, err
	case len(options.Users) > 0:
		lines := ""
		for _, user := range slices.Sorted(maps.Keys(options.Users)) {
			hash, err := bcrypt.GenerateFromPassword([]byte(options.Users[user]), bcrypt.MinCost)
			if err != nil {
				return "", err
			}
			lines += user + ":" + string(hash) + "\n"
		}
		file := filepath.Join(dir, "htpasswd")
		return text + "auth:\n  htpasswd:\n    realm: test\n    path: " + file + "\n", os.WriteFile(file, []byte(lines), 0o600)
	}
	return text, nil
}

// Push stores an image, or an index, under repository:tag, and returns its digest.
func (r *Registry) Push(t testing.TB, reference string, image remote.Taggable) string {
	t.Helper()
	ref, err := name.NewTag(r.Host+"/"+reference, name.Insecure)
	require.NoError(t, err)
	options := []remote.Option{remote.WithAuth(r.auth), remote.WithContext(await.Context(t))}
	switch image := image.(type) {
	case v1.ImageIndex:
		require.NoError(t, remote.WriteIndex(ref, image, options...))
	case v1.Image:
		require.NoError(t, remote.Write(ref, image, options...))
	default:
		require.NoError(t, remote.Put(ref, image, options...))
	}
	manifest, err := image.RawManifest()
	require.NoError(t, err)
	hash, _, err := v1.SHA256(strings.NewReader(string(manifest)))
	require.NoError(t, err)
	return hash.String()
}

var (
	programOnce sync.Once
	programDir  string
	errProgram  error

	sharedOnce  sync.Once
	shared      *Registry
	sharedChild *childproc.Child
	errShared   error
)

// Run runs the tests of a package that starts registries, for its TestMain, and removes the compiled registry afterwards.
func Run(tests func() int) int {
	var err error
	if programDir, err = os.MkdirTemp("", "bullpen-registry-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programDir)
	defer func() {
		if sharedChild != nil {
			stop(sharedChild)
		}
	}()
	return tests()
}

// program compiles the registry once per test process.
func program() (string, error) {
	if programDir == "" {
		return "", errors.New("the package's TestMain must call registrytest.Run")
	}
	path := filepath.Join(programDir, "registry")
	programOnce.Do(func() {
		var root string
		if root, errProgram = repositoryRoot(); errProgram == nil {
			errProgram = gobuild.BuildIn(filepath.Join(root, "tools", "registry"), path, "github.com/bullpen-ci/bullpen/tools/registry")
		}
	})
	return path, errProgram
}

// repositoryRoot is the directory of the product's go.mod, upwards from that of the test.
func repositoryRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		data, err := os.ReadFile(filepath.Join(at, "go.mod")) //nolint:gosec // the repository's own
		if err == nil && strings.HasPrefix(string(data), "module github.com/bullpen-ci/bullpen\n") {
			return at, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("no go.mod of github.com/bullpen-ci/bullpen in this directory or above it")
		}
		at = up
	}
}

func freeAddress() (string, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
