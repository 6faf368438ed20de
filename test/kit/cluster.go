package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
)

// EnvKeep, when set, keeps the state directory (logs, data) of a test process that failed, and prints where it is.
const EnvKeep = "BULLPEN_TEST_KEEP"

// startPatience bounds the start of a control plane on a loaded machine with two cores.
const startPatience = 3 * time.Minute

// Env is a running control plane as a test sees it.
type Env struct {
	// Plane is the control plane itself: identities, log files, and stopping and starting of its components. Only a
	// test that has it alone (Private) may stop anything.
	Plane *controlplane.ControlPlane
	// Config is an administrator's client configuration. Copy it before changing it.
	Config *rest.Config
	// Kube is a client with that configuration.
	Kube kubernetes.Interface

	stateDir string
}

// shared is the one control plane of this test process.
var shared struct {
	mu   sync.Mutex
	main bool // Main runs the tests, and will stop what they start
	env  *Env
	err  error
}

// Main runs the tests of a package, and stops the shared control plane afterwards. Use it in TestMain:
// os.Exit(kit.Main(m)).
func Main(m *testing.M) int {
	ctrllog.SetLogger(logr.Discard()) // tests that need a log set their own; without any, controller-runtime complains
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.env == nil {
		return code
	}
	if err := shared.env.stop(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, "kit: stopping the control plane:", err)
		return max(code, 1)
	}
	return code
}

// Cluster returns the control plane that all tests of this process share, with the product's CRDs and admission policies
// installed. The first call starts it (a few seconds). The package's TestMain must call Main, which stops it.
func Cluster(t testing.TB) *Env {
	t.Helper()
	dir := AssetsOrFail(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	require.True(t, shared.main, "a package that uses kit.Cluster needs: func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }")
	if shared.env == nil && shared.err == nil {
		shared.env, shared.err = start(dir)
	}
	require.NoError(t, shared.err)
	require.NoError(t, shared.env.Plane.Err(), "the shared control plane")
	return shared.env
}

// Private starts a control plane for this test alone, which may stop and restart its components, and may be changed
// before it starts. It ends with the test.
func Private(t testing.TB, change ...func(*controlplane.Options)) *Env {
	t.Helper()
	env, err := start(AssetsOrFail(t), change...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, env.stop(t.Failed())) })
	return env
}

// Bare is Private without anything of the product, as before an installation.
func Bare(t testing.TB) *Env {
	t.Helper()
	env, err := startPlane(AssetsOrFail(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, env.stop(t.Failed())) })
	return env
}

// AssetsOrFail returns the directory of control plane executables. Without one the test fails, for a suite that skips
// what it cannot run proves nothing.
func AssetsOrFail(t testing.TB) string {
	t.Helper()
	dir, err := controlplane.Find(assets.Options{})
	if err != nil {
		t.Fatalf("this test needs the development control plane: run `make devcluster` once (%v)", err)
	}
	return dir
}

// start starts a control plane with the product's CRDs and admission policies.
func start(assetsDir string, change ...func(*controlplane.Options)) (*Env, error) {
	env, err := startPlane(assetsDir, change...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	err = installCRDs(env.Config)
	if err == nil {
		err = installAdmission(ctx, env.Config, env.Kube)
	}
	if err != nil {
		return nil, errors.Join(err, env.stop(true))
	}
	return env, nil
}

func startPlane(assetsDir string, change ...func(*controlplane.Options)) (_ *Env, err error) {
	stateDir, err := os.MkdirTemp("", "bullpen-test-")
	if err != nil {
		return nil, fmt.Errorf("making the control plane's state directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	options := controlplane.Options{AssetsDir: assetsDir, StateDir: stateDir, FastUnsafe: true, StartTimeout: startPatience}
	for _, c := range change {
		c(&options)
	}
	plane, err := controlplane.Start(ctx, options)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the test control plane: %w", err), discard(stateDir, true))
	}
	env := &Env{Plane: plane, Config: plane.AdminConfig(), stateDir: stateDir}
	if env.Kube, err = kubernetes.NewForConfig(env.Config); err != nil {
		return nil, errors.Join(err, env.stop(true))
	}
	return env, nil
}

func (e *Env) stop(failed bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(e.Plane.Stop(ctx), discard(e.stateDir, failed))
}

func discard(stateDir string, failed bool) error {
	if failed && os.Getenv(EnvKeep) != "" {
		fmt.Fprintln(os.Stderr, "kit: the control plane's logs and data are kept in", stateDir)
		return nil
	}
	return os.RemoveAll(stateDir)
}

// installCRDs creates the product's custom resource definitions and waits until the API server serves them.
func installCRDs(config *rest.Config) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "charts", "bullpen", "crds")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in %s; run `make generate`", dir)
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{
		Paths: files, ErrorIfPathMissing: true, MaxTime: time.Minute, PollInterval: 50 * time.Millisecond,
	})
	if err != nil {
		return fmt.Errorf("installing the CRDs of %s: %w", dir, err)
	}
	return nil
}

// repositoryRoot is the directory of the product's go.mod, upwards from the directory that the test runs in.
func repositoryRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		data, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/bullpen-ci/bullpen\n") {
			return at, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("finding the repository: no go.mod of github.com/bullpen-ci/bullpen in this folder or above it")
		}
		at = up
	}
}
