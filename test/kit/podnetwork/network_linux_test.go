package podnetwork

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces take root: run this test as root")
	}
}

func open(t *testing.T, dir string) *Network {
	t.Helper()
	n, err := Open(Options{StateDir: dir})
	require.NoError(t, err)
	return n
}

// serve answers who connects with a word, in a pod's namespace.
func serve(t *testing.T, file, address, word string) {
	t.Helper()
	var listener net.Listener
	require.NoError(t, netns.Within(file, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		return err
	}))
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, word)
			_ = conn.Close()
		}
	}()
}

func read(t *testing.T, conn net.Conn, err error) string {
	t.Helper()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	word, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(word)
}

// Two pods listen on the same port, each on all of its own addresses; they reach each other, the node reaches both, and both
// reach what listens at a Service's address. The machine sees none of it.
func TestNetwork_EachPodHasAnAddressOfItsOwn(t *testing.T) {
	needRoot(t)
	n := open(t, t.TempDir()+"/net")
	t.Cleanup(func() { require.NoError(t, n.Destroy()) })
	ctx := t.Context()
	addresses := map[string]netip.Addr{}
	for _, pod := range []string{"a", "b"} {
		address, err := n.Attach(ctx, pod)
		require.NoError(t, err)
		again, err := n.Attach(ctx, pod)
		require.NoError(t, err)
		require.Equal(t, address, again)
		addresses[pod] = address
		serve(t, n.NamespaceFile(pod), ":8080", pod)
	}
	require.Equal(t, "10.112.0.2", addresses["a"].String())
	require.Equal(t, "10.112.0.3", addresses["b"].String())
	for pod, address := range addresses {
		conn, err := n.DialContext(ctx, "tcp", address.String()+":8080")
		require.Equal(t, pod, read(t, conn, err))
	}
	service, err := n.Listen(ctx, "tcp", "10.111.3.4:80")
	require.NoError(t, err)
	defer service.Close()
	go func() {
		for {
			conn, err := service.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, conn.RemoteAddr().(*net.TCPAddr).IP.String())
			_ = conn.Close()
		}
	}()
	require.NoError(t, netns.Within(n.NamespaceFile("a"), func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", "10.112.0.3:8080")
		require.Equal(t, "b", read(t, conn, err))
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", "10.111.3.4:80")
		require.Equal(t, "10.112.0.2", read(t, conn, err), "a Service sees the pod's own address")
		return nil
	}))
	links, err := net.Interfaces()
	require.NoError(t, err)
	for _, link := range links {
		require.NotEqual(t, bridgeName, link.Name)
	}
}

// NODE-3: a process that opens the directory later finds the pods where they were. An address is not reused soon after it
// was released.
func TestNetwork_NODE3_NamespacesOutliveTheirMaker(t *testing.T) {
	needRoot(t)
	dir := t.TempDir() + "/net"
	first := open(t, dir)
	address, err := first.Attach(t.Context(), "a")
	require.NoError(t, err)
	serve(t, first.NamespaceFile("a"), ":80", "still here")

	second := open(t, dir)
	t.Cleanup(func() { require.NoError(t, second.Destroy()) })
	again, found := second.Address("a")
	require.True(t, found)
	require.Equal(t, address, again)
	conn, err := second.DialContext(t.Context(), "tcp", address.String()+":80")
	require.Equal(t, "still here", read(t, conn, err))

	require.NoError(t, second.Detach(t.Context(), "a"))
	require.NoError(t, second.Detach(t.Context(), "a"))
	_, found = second.Address("a")
	require.False(t, found)
	require.NoFileExists(t, second.NamespaceFile("a"))
	next, err := second.Attach(t.Context(), "b")
	require.NoError(t, err)
	require.NotEqual(t, address, next)
}

func TestOpen_Refuses(t *testing.T) {
	_, err := Open(Options{StateDir: "relative"})
	require.ErrorContains(t, err, "absolute")
	_, err = Open(Options{StateDir: t.TempDir(), Pods: netip.MustParsePrefix("10.0.0.0/8")})
	require.ErrorContains(t, err, "overlap")
	_, err = Open(Options{StateDir: t.TempDir(), Pods: netip.MustParsePrefix("fd00::/64")})
	require.ErrorContains(t, err, "IPv4")
}
