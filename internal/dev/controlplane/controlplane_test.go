package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
)

const (
	patience = time.Minute
	interval = 20 * time.Millisecond
)

// envOwner makes this test binary the owner of a control plane in the directory it names, until it is killed.
const envOwner = "BULLPEN_TEST_OWNER_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envOwner); dir != "" {
		own(dir)
	}
	os.Exit(m.Run())
}

func own(dir string) {
	plane, err := controlplane.Start(context.Background(), controlplane.Options{StateDir: dir, StartTimeout: patience})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(plane.Pids()); err != nil {
		os.Exit(1)
	}
	<-plane.Done() // bounded: the test kills this process
	os.Exit(1)
}

func options(t *testing.T, dir string) controlplane.Options {
	t.Helper()
	found, err := controlplane.Find(assets.Options{})
	require.NoError(t, err, "run `make devcluster`")
	return controlplane.Options{AssetsDir: found, StateDir: dir, FastUnsafe: true, StartTimeout: patience}
}

func start(t *testing.T, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Stop(context.Background())) })
	return plane
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	made, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return made
}

func requireGone(t *testing.T, pids map[controlplane.Component]int) {
	t.Helper()
	for component, pid := range pids {
		require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, patience, interval,
			"%s, process %d, lives on", component, pid)
	}
}

func TestStart_ServesUntilStoppedAndAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	o := options(t, dir)
	o.FastUnsafe = false // an orderly end, and durable data
	first := start(t, o)
	pids, url, identity := first.Pids(), first.URL(), identityOf(t, first, "alice")
	require.Len(t, pids, 4)

	t.Run("a second owner is refused", func(t *testing.T) {
		_, err := controlplane.Start(t.Context(), o)
		require.ErrorIs(t, err, controlplane.ErrInUse)
		require.ErrorContains(t, err, dir)
		require.Equal(t, pids, first.Pids(), "the refused one touched nothing")
	})
	t.Run("its files are private", func(t *testing.T) {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		info, err = os.Stat(first.AdminKubeconfig())
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	})
	t.Run("an identity may do what it was given", func(t *testing.T) {
		_, err := clientFor(t, identity).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "alice")
		anonymous := rest.AnonymousClientConfig(identity)
		_, err = clientFor(t, anonymous).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	})

	config, err := clientcmd.BuildConfigFromFlags("", first.AdminKubeconfig())
	require.NoError(t, err)
	_, err = clientFor(t, config).CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, first.Stop(t.Context()))
	requireGone(t, pids)
	require.Empty(t, first.Pids())
	require.NoError(t, first.Err(), "an end that was asked for is no failure")
	require.ErrorIs(t, first.StartComponent(t.Context(), controlplane.Etcd), controlplane.ErrStopped)

	second := start(t, o)
	require.Equal(t, url, second.URL())
	_, err = clientFor(t, config).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err, "the kubeconfig of the first run still opens the second one")
	_, err = clientFor(t, identity).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "the identity of the first run is still known: %v", err)
}

func identityOf(t *testing.T, plane *controlplane.ControlPlane, user string) *rest.Config {
	t.Helper()
	config, err := plane.Identity(user)
	require.NoError(t, err)
	_, err = plane.Identity("")
	require.Error(t, err)
	return config
}

func TestStart_CleansUpAfterAKilledOwner(t *testing.T) {
	dir := t.TempDir()
	o := options(t, dir)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), envOwner+"="+dir)
	output, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	var pids map[controlplane.Component]int
	if err == nil {
		err = json.Unmarshal([]byte(line), &pids)
	}
	require.NoError(t, errors.Join(err, owner.Process.Kill()))
	require.Error(t, owner.Wait())
	require.Len(t, pids, 4)
	if runtime.GOOS == "linux" {
		requireGone(t, pids) // the kernel ends them with their owner
	}

	plane := start(t, o)
	requireGone(t, pids)
	_, err = clientFor(t, plane.AdminConfig()).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestControlPlane_ReportsAnUnexpectedExit(t *testing.T) {
	plane := start(t, options(t, t.TempDir()))
	require.NoError(t, plane.Restart(t.Context(), controlplane.Scheduler))
	select {
	case <-plane.Done():
		t.Fatal("a restart is no unexpected end")
	default:
	}
	require.NoError(t, plane.Err())

	require.NoError(t, syscall.Kill(plane.Pids()[controlplane.Scheduler], syscall.SIGKILL))
	select {
	case <-plane.Done():
	case <-time.After(patience):
		t.Fatal("nobody was told")
	}
	require.ErrorContains(t, plane.Err(), "kube-scheduler ended unexpectedly")
	require.ErrorContains(t, plane.Err(), plane.LogPath(controlplane.Scheduler))
	require.NotContains(t, plane.Pids(), controlplane.Scheduler)

	require.NoError(t, plane.StartComponent(t.Context(), controlplane.Scheduler))
	require.Contains(t, plane.Pids(), controlplane.Scheduler)
}

func TestStart_SaysWhereToLookWhenAComponentDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	o := options(t, dir)
	o.ExtraArgs = map[controlplane.Component][]string{controlplane.APIServer: {"--no-such-flag"}}
	_, err := controlplane.Start(t.Context(), o)
	require.ErrorContains(t, err, "waiting for kube-apiserver")
	_, path, found := strings.Cut(err.Error(), "(its log: ")
	require.True(t, found)
	log, err := os.ReadFile(strings.TrimSuffix(path, ")"))
	require.NoError(t, err)
	require.Contains(t, string(log), "no-such-flag")

	o.ExtraArgs = nil
	start(t, o) // the failed start left neither lock nor process
}

func TestStart_RefusesOptionsThatCannotWork(t *testing.T) {
	_, err := controlplane.Start(t.Context(), controlplane.Options{})
	require.ErrorContains(t, err, "state directory is required")
	_, err = controlplane.Start(t.Context(), controlplane.Options{StateDir: t.TempDir(), AssetsDir: t.TempDir()})
	require.ErrorIs(t, err, assets.ErrMissing)
	_, err = controlplane.Start(t.Context(), controlplane.Options{StateDir: t.TempDir(),
		ExtraArgs: map[controlplane.Component][]string{"kubelet": {"--x"}}})
	require.ErrorContains(t, err, "kubelet")
}
