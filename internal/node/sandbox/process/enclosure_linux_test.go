package process_test

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/test/kit/podnetwork"
	"github.com/bullpen-ci/bullpen/test/kit/sandboxtest"
)

// imageName is this machine's own files.
const imageName = "example.com/team/machine:v1"

// enclosed prepares an enclosure for the pods of one state directory.
func enclosed(t *testing.T) *process.Enclosure {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("an enclosure takes root: run this test as root")
	}
	dir, err := os.MkdirTemp("", "bullpen-enclosure-")
	require.NoError(t, err)
	network, err := podnetwork.Open(podnetwork.Options{StateDir: filepath.Join(dir, "net")})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, network.Destroy())
		require.NoError(t, os.RemoveAll(dir))
	})
	image := filepath.Join(dir, "images", "example.com", "team", "machine", "v1")
	require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o755))
	require.NoError(t, os.Symlink("/", image))
	return &process.Enclosure{
		Network: network, Images: filepath.Join(dir, "images"), Nameserver: netip.MustParseAddr("10.111.0.10"),
		EnterCommand: []string{os.Args[0], "enter"},
	}
}

// enclosedMachine runs the suite's containers in enclosures.
type enclosedMachine struct {
	machine
	enclosure *process.Enclosure
}

func (m enclosedMachine) options() process.Options {
	o := options(m.dir)
	o.Enclosure = m.enclosure
	return o
}

func (m enclosedMachine) Open(t *testing.T) sandbox.Sandbox {
	sb, err := process.New(m.options())
	require.NoError(t, err)
	return sb
}

func (m enclosedMachine) Make(t *testing.T, pod *corev1.Pod, name string, b sandboxtest.Behaviour) sandbox.Container {
	c := m.machine.Make(t, pod, name, b)
	c.Image = imageName
	c.Env = []sandbox.EnvVar{{Name: "HOME", Value: "/pids"}}
	c.Mounts = []sandbox.Mount{{MountPath: "/pids", HostPath: filepath.Join(m.containerDir(string(pod.UID), name), "home")}}
	return c
}

func TestEnclosure_Conformance(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Machine {
		enclosure := enclosed(t) // its network goes when nothing runs in it any more
		return enclosedMachine{newMachine(t), enclosure}
	})
}

func openEnclosed(t *testing.T) *process.Sandbox {
	enclosure := enclosed(t)
	sb, err := process.New(enclosedMachine{newMachine(t), enclosure}.options())
	require.NoError(t, err)
	return sb
}

// A container finds the files of its image, its volumes at their paths, its own name and address; and the files that it writes are visible
// to no other container.
func TestEnclosure_AContainerFindsWhatAClusterWouldGiveIt(t *testing.T) {
	sb := openEnclosed(t)
	volume := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(volume, "token"), []byte("t0ken"), 0o644))
	c := sh(`cat /var/run/secrets/here/token; echo; hostname; cat /etc/resolv.conf; grep pod$ /etc/hosts; id -u; id -g; pwd
		touch /opt/written && echo wrote; touch /var/run/secrets/here/x 2>/dev/null || echo read-only; grep NoNewPrivs /proc/self/status`)
	c.Image, c.WorkingDir = imageName, "/opt"
	c.Mounts = []sandbox.Mount{{MountPath: "/var/run/secrets/here", HostPath: volume, ReadOnly: true}}
	exit, log := run(t, sb, c)
	require.Zero(t, exit.Code, log)
	require.Equal(t, `t0ken
pod
nameserver 10.111.0.10
search ns.svc.cluster.local svc.cluster.local cluster.local
options ndots:5
10.112.0.2 pod
0
0
/opt
wrote
read-only
NoNewPrivs:	0
`, log)
	require.NoFileExists(t, "/opt/written")
	require.NoDirExists(t, "/run/secrets/here")
}

// A command joins the container: it finds what the container wrote into its root, its address, its user, and a terminal of its own.
func TestEnclosure_ACommandJoinsTheContainer(t *testing.T) {
	sb := openEnclosed(t)
	pod := newPod()
	require.NoError(t, sb.Prepare(t.Context(), pod))
	c := sh(`echo private > /tmp/of-the-container; readlink /proc/self/ns/net; sleep 1000`)
	c.Name, c.Image, c.WorkingDir = "main", imageName, "/opt"
	c.Security = sandbox.Security{User: 1001, Group: 1002, NoNewPrivileges: true}
	require.NoError(t, sb.Start(t.Context(), pod, c))
	log, err := sb.OpenLog(string(pod.UID), "main")
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	namespace := make([]byte, 200)
	require.Eventually(t, func() bool {
		n, _ := log.ReadAt(namespace, 0)
		return bytes.HasSuffix(namespace[:n], []byte("]\n"))
	}, patience, 5*time.Millisecond)
	var out bytes.Buffer
	code, err := sb.Exec(t.Context(), string(pod.UID), "main", []string{"sh", "-c",
		`cat /tmp/of-the-container; readlink /proc/self/ns/net; id -u; id -g; pwd; hostname; test -t 0 && echo terminal; echo $TERM; exit 4`,
	}, sandbox.Streams{Out: &out, TTY: true})
	require.NoError(t, err)
	require.Equal(t, 4, code)
	inside := string(namespace[:bytes.IndexByte(namespace, '\n')])
	require.Equal(t, "private\n"+inside+"\n1001\n1002\n/opt\npod\nterminal\nxterm\n", strings.ReplaceAll(out.String(), "\r\n", "\n"))
	require.NoFileExists(t, "/tmp/of-the-container")
	require.NoError(t, sb.Remove(context.WithoutCancel(t.Context()), string(pod.UID)))
}

// What a security context forbids is not possible.
func TestEnclosure_SecurityContextsHold(t *testing.T) {
	sb := openEnclosed(t)
	volume := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(volume, "roots"), []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(volume, "groups"), []byte("shared\n"), 0o640))
	require.NoError(t, os.Chown(filepath.Join(volume, "groups"), 0, 2000))
	c := sh(`id -u; id -g; id -G; cat /v/groups; cat /v/roots 2>/dev/null || echo refused
		touch /opt/written 2>/dev/null || echo read-only; grep -E 'NoNewPrivs|CapEff' /proc/self/status`)
	c.Image = imageName
	c.Mounts = []sandbox.Mount{{MountPath: "/v", HostPath: volume}}
	c.Security = sandbox.Security{User: 1001, Group: 1002, Groups: []int64{2000}, ReadOnlyRoot: true, NoNewPrivileges: true}
	exit, log := run(t, sb, c)
	require.Zero(t, exit.Code, log)
	require.Equal(t, "1001\n1002\n1002 2000\nshared\nrefused\nread-only\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n", log)
}

// Two pods listen on one port; each is reached at the address that Inspect tells.
func TestEnclosure_PodsAreReachedAtTheirOwnAddress(t *testing.T) {
	enclosure := enclosed(t)
	m := enclosedMachine{newMachine(t), enclosure}
	sb := m.Open(t)
	network := enclosure.Network.(*podnetwork.Network)
	seen := map[string]bool{}
	for range 2 {
		pod := newPod()
		require.NoError(t, sb.Prepare(t.Context(), pod))
		self, err := os.Readlink("/proc/self/exe")
		require.NoError(t, err)
		c := sandbox.Container{
			Name: "main", Image: imageName, Command: []string{"/test/binary", "listen", ":8080"},
			Mounts: []sandbox.Mount{{MountPath: "/test/binary", HostPath: self, ReadOnly: true}},
		}
		require.NoError(t, sb.Start(t.Context(), pod, c))
		state, err := sb.Inspect(t.Context(), string(pod.UID))
		require.NoError(t, err)
		require.False(t, seen[state.Address], state.Address)
		seen[state.Address] = true
		var conn net.Conn
		require.Eventually(t, func() bool {
			conn, err = network.DialContext(t.Context(), "tcp", state.Address+":8080")
			return err == nil
		}, patience, 20*time.Millisecond)
		require.NoError(t, conn.Close())
	}
}

func TestEnclosure_AnImageThatIsNotThereIsNoEndOfTheContainer(t *testing.T) {
	sb := openEnclosed(t)
	pod := newPod()
	require.NoError(t, sb.Prepare(t.Context(), pod))
	for image, says := range map[string]string{
		"example.com/team/machine:v2": "image example.com/team/machine:v2 not found",
		"example.com/team/machine":    "/latest",
		"../../etc:passwd":            "not the name of an image",
	} {
		err := sb.Start(t.Context(), pod, sandbox.Container{Name: "main", Image: image, Command: []string{"true"}})
		require.ErrorContains(t, err, says)
	}
	_, err := sb.Wait(t.Context(), string(pod.UID), "main")
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	require.NoError(t, sb.Remove(context.WithoutCancel(t.Context()), string(pod.UID)))
}

// A command that cannot be started is an end like any other, and the log says why.
func TestEnclosure_ACommandThatIsNotThere(t *testing.T) {
	exit, log := run(t, openEnclosed(t), sandbox.Container{Image: imageName, Command: []string{"no-such-program"}})
	require.EqualValues(t, 128, exit.Code)
	require.True(t, strings.Contains(log, `"no-such-program" is not in the container's PATH`), log)
}

func TestNew_RefusesAnEnclosureWithoutNetworkOrImages(t *testing.T) {
	_, err := process.New(process.Options{StateDir: stateDir(t), Enclosure: &process.Enclosure{Images: "/images"}})
	require.ErrorContains(t, err, "network")
	_, err = process.New(process.Options{StateDir: stateDir(t), Enclosure: &process.Enclosure{Network: (*podnetwork.Network)(nil), Images: "relative"}})
	require.ErrorContains(t, err, "absolute")
}
