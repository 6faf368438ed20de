package chaos

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

func TestKillAPIServer_ComesBackWithItsData(t *testing.T) {
	env := kit.Private(t)
	t.Run("a proxy before it breaks a watch in the middle", func(t *testing.T) { watchThroughProxy(t, env) })
	before := env.Plane.Pids()
	began := time.Now()
	require.NoError(t, KillAPIServer(t.Context(), env.Plane, 300*time.Millisecond))
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	after := env.Plane.Pids()
	require.NotEqual(t, before[controlplane.APIServer], after[controlplane.APIServer])
	require.Equal(t, before[controlplane.Etcd], after[controlplane.Etcd])
	_, err := env.Kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
	require.NoError(t, err)
}

func watchThroughProxy(t *testing.T, env *kit.Env) {
	at, err := url.Parse(env.Plane.URL())
	require.NoError(t, err)
	proxy, err := NewProxy(at.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	config := rest.CopyConfig(env.Config)
	config.Host = "https://" + proxy.Addr()
	through, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	watching, err := through.CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(await.Context(t), metav1.ListOptions{})
	require.NoError(t, err)
	create := func(name string) {
		one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := env.Kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), one, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	seen := func(name string) bool {
		for e := range watching.ResultChan() { // bounded: the watch ends with its context
			if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name == name {
				return true
			}
		}
		return false
	}
	create("one")
	require.True(t, seen("one"))
	require.Positive(t, proxy.Cut())
	create("two")
	require.False(t, seen("two"), "the watch has ended")
	_, err = through.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "two", metav1.GetOptions{})
	require.NoError(t, err, "the next request gets through")
}

// program passes a point again and again, until it is stopped, and prints its clock each time.
const program = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		faultpoint.Reached(faultpoint.MintAnswered)
		fmt.Println(faultpoint.Now().Sub(time.Now()).Round(time.Second))
	}
}
`

// victim is such a program.
type victim struct {
	t       *testing.T
	command *exec.Cmd
	in      interface{ Write([]byte) (int, error) }
	out     interface{ Read([]byte) (int, error) }
}

func start(t *testing.T, binary string, p Points) *victim {
	t.Helper()
	v := &victim{t: t, command: exec.Command(binary)}
	v.command.Env = append(os.Environ(), p.Environment())
	var err error
	v.in, err = v.command.StdinPipe()
	require.NoError(t, err)
	v.out, err = v.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, v.command.Start())
	t.Cleanup(func() { _ = v.command.Process.Kill(); _ = v.command.Wait() })
	return v
}

// pass has it pass the point, and returns its clock; "" when it has died.
func (v *victim) pass() string {
	v.t.Helper()
	_, _ = v.in.Write([]byte("\n"))
	buffer := make([]byte, 100)
	n, _ := v.out.Read(buffer)
	return string(buffer[:n])
}

func buildVictim(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "_victim-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	binary := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, gobuild.Build(binary, "./"+dir, "-tags", "faultpoints"))
	return binary
}

func TestPoints_KillOneProcessAndSkewItsClock(t *testing.T) {
	binary := buildVictim(t)
	p := Points{Dir: t.TempDir()}
	one, two := start(t, binary, p), start(t, binary, p)
	require.Equal(t, "0s\n", one.pass())

	require.NoError(t, p.Skew(two.command.Process.Pid, -90*time.Second))
	require.Equal(t, "-1m30s\n", two.pass())
	require.NoError(t, until(t.Context(), func() bool { return one.pass() == "0s\n" }), "only its")
	require.NoError(t, p.Skew(0, time.Hour))
	require.NoError(t, until(t.Context(), func() bool { return one.pass() == "1h0m0s\n" }))
	require.NoError(t, p.Skew(0, 0))
	require.NoError(t, p.Skew(two.command.Process.Pid, 0))
	require.NoError(t, until(t.Context(), func() bool { return two.pass() == "0s\n" }))

	require.NoError(t, p.Arm(faultpoint.MintAnswered, 2, two.command.Process.Pid))
	require.NotEmpty(t, two.pass())
	require.True(t, p.Armed(faultpoint.MintAnswered, two.command.Process.Pid))
	require.NotEmpty(t, one.pass())
	require.Empty(t, two.pass(), "the second passing")
	require.False(t, p.Armed(faultpoint.MintAnswered, two.command.Process.Pid))
	require.NotEmpty(t, one.pass())

	require.NoError(t, p.Arm(faultpoint.MintAnswered, 1, 0))
	inTime, err := p.Disarm(faultpoint.MintAnswered, 0)
	require.NoError(t, err)
	require.True(t, inTime)
	require.NotEmpty(t, one.pass())
	require.NoError(t, p.Arm(faultpoint.MintAnswered, 1, 0))
	require.Empty(t, one.pass())
	inTime, err = p.Disarm(faultpoint.MintAnswered, 0)
	require.NoError(t, err)
	require.False(t, inTime, "a process has died there")
}
