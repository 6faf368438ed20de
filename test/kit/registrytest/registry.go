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
	program, err := program()
	require.NoError(t, err)
	dir := t.TempDir()
	r := &Registry{auth: authn.Anonymous, log: filepath.Join(dir, "log")}
	for user, password := range options.Users {
		r.auth = &authn.Basic{Username: user, Password: password}
	}
	if options.Tokens != nil {
		r.auth = options.Tokens.pusher()
	}
	for attempt := 0; ; attempt++ {
		// Another process may take the free port before the registry listens on it.
		err := r.start(t, program, dir, options)
		if err == nil {
			return r
		}
		text, _ := os.ReadFile(r.log)
		require.Less(t, attempt, 2, "%s\n%s", err, text)
	}
}

func (r *Registry) start(t testing.TB, program, dir string, options Options) error {
	r.Host = freeAddress(t)
	config := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte(r.config(t, dir, options)), 0o600))
	command := exec.Command(program, "serve", config) //nolint:noctx,gosec // the test's cleanup ends it
	command.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	child, err := childproc.StartLogged(command, r.log, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		child.Stop(context.Background(), syscall.SIGTERM, 2*time.Second)
		if t.Failed() {
			text, _ := os.ReadFile(r.log)
			t.Logf("registry:\n%s", text)
		}
	})
	deadline := time.NewTimer(await.Limit)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-child.Done():
			return errors.New("the registry exited: " + child.Outcome())
		case <-deadline.C:
			return errors.New("the registry does not listen")
		case <-ticker.C:
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Host+"/v2/", nil)
		require.NoError(t, err)
		response, err := await.HTTP.Do(request)
		if err == nil {
			response.Body.Close()
			return nil
		}
	}
}

func (r *Registry) config(t testing.TB, dir string, options Options) string {
	text := fmt.Sprintf("version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: %s\nhttp:\n  addr: %s\n  secret: test\n",
		filepath.Join(dir, "data"), r.Host)
	switch {
	case options.Tokens != nil:
		text += options.Tokens.config(t, dir)
	case len(options.Users) > 0:
		lines := ""
		for _, user := range slices.Sorted(maps.Keys(options.Users)) {
			hash, err := bcrypt.GenerateFromPassword([]byte(options.Users[user]), bcrypt.MinCost)
			require.NoError(t, err)
			lines += user + ":" + string(hash) + "\n"
		}
		file := filepath.Join(dir, "htpasswd")
		require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
		text += "auth:\n  htpasswd:\n    realm: test\n    path: " + file + "\n"
	}
	return text
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
)

// Run runs the tests of a package that starts registries, for its TestMain, and removes the compiled registry afterwards.
func Run(m *testing.M) int {
	var err error
	if programDir, err = os.MkdirTemp("", "bullpen-registry-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programDir)
	return m.Run()
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

func freeAddress(t testing.TB) string {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
