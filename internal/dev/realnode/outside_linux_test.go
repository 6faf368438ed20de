package realnode

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resolverAddress is where the test has a name server.
const resolverAddress = "127.0.0.2"

// serveNames answers every query for an IPv4 address with 198.51.100.7.
func serveNames(t *testing.T) {
	t.Helper()
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", resolverAddress+":53")
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		packet := make([]byte, maxDNS)
		for {
			size, from, err := socket.ReadFrom(packet)
			if err != nil {
				return
			}
			var message dnsmessage.Message
			if message.Unpack(packet[:size]) != nil || len(message.Questions) != 1 {
				continue
			}
			asked := message.Questions[0]
			message.Response, message.Additionals = true, nil
			if asked.Type == dnsmessage.TypeA {
				message.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class, TTL: 5}, Body: &dnsmessage.AResource{A: [4]byte{198, 51, 100, 7}},
				}}
			}
			if answer, err := message.Pack(); err == nil {
				_, _ = socket.WriteTo(answer, from)
			}
		}
	}()
}

// ownAddress is an address of this machine that is not its loopback's.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if prefix, is := address.(*net.IPNet); is && prefix.IP.To4() != nil && !prefix.IP.IsLoopback() {
			return prefix.IP.String()
		}
	}
	t.Fatal("this machine has no address beside its loopback's")
	return ""
}

// Pods reach what the machine reaches. After a kill of everything, the next start has the images, and the pods of the last one have failed.
func TestNode_ReachesTheOutsideAndKeepsImages(t *testing.T) {
	serveNames(t)
	images := t.TempDir()
	options := func(o *Options) { o.Outside, o.Resolvers, o.ImagesDir = true, []string{resolverAddress}, images }
	w := newWorld(t, options)
	node := w.addNode("one")
	listener, err := new(net.ListenConfig).Listen(w.ctx, "tcp", "0.0.0.0:0")
	require.NoError(t, err)
	go answer(listener, "machine")
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)

	w.run("out", fmt.Sprintf("getent ahostsv4 outside.test; exec 3<>/dev/tcp/%s/%s; cat <&3; echo; sleep 600", ownAddress(t), port), nil)
	w.phase("out", corev1.PodRunning)
	said := ""
	defer func() { t.Log("the pod says: " + said) }()
	require.Eventually(t, func() bool {
		said = w.logs("out")
		return strings.Contains(said, "198.51.100.7") && strings.Contains(said, "machine")
	}, time.Minute, 100*time.Millisecond, "what the pod says")

	require.NoError(t, w.cluster.Plane().Stop(w.ctx)) // what follows looks like a kill of this process
	node.Kill(w.ctx)
	require.NoError(t, RemoveRemains(w.ctx, w.state))
	require.NoError(t, w.cluster.Stop(w.ctx))
	require.NoDirExists(t, filepath.Join(w.state, "nodes"))
	w.start(options)
	node, err = w.cluster.AddNode(w.ctx, "one")
	require.NoError(t, err)
	kept, err := Runtime{Init: node.Init()}.Images(w.ctx)
	require.NoError(t, err)
	require.Contains(t, names(kept), hostImage)
	w.phase("out", corev1.PodFailed)
	w.run("again", "echo again", nil)
	w.phase("again", corev1.PodSucceeded)
	pods, err := w.kube.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 2)
	_, err = os.Stat(images)
	require.NoError(t, err)
}

func names(images []NodeImage) []string {
	var all []string
	for _, image := range images {
		all = append(all, image.Name)
	}
	return all
}
