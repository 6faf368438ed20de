package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/internal/node/kubeletapi"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/podconformance"
	"github.com/bullpen-ci/bullpen/test/kit/podnetwork"
)

const conformanceImage = "example.com/team/machine:v1"

// The agent with the process sandbox does with pods what a kubelet does, but for the listed differences.
func TestConformance_WithAKubelet(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("users, modes and mounts take root: run this test as root (CI does)")
	}
	f := makeFixture(t) // not parallel: rows measure times
	f.runEnclosed()
	f.node(nodeReady)
	podconformance.Run(t, podconformance.Env{
		Kube: f.kube, Config: f.env.Config, Namespace: f.env.Namespace, Node: f.name, Image: conformanceImage, Differences: podconformance.NodeAgent,
	})
}

// runEnclosed runs an agent whose containers have networks, files and users of their own, and serves their logs and commands.
func (f *fixture) runEnclosed() {
	dir, err := os.MkdirTemp("", "bullpen-conformance-")
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, os.RemoveAll(dir)) })
	network, err := podnetwork.Open(podnetwork.Options{StateDir: filepath.Join(dir, "net"), Services: netip.MustParsePrefix(controlplane.ServiceRange)})
	require.NoError(f, err)
	f.Cleanup(func() {
		_, err := process.Cleanup(context.Background(), f.stateDir) // no process may be left in the network
		require.NoError(f, err)
		require.NoError(f, network.Destroy())
	})
	image := filepath.Join(dir, "images", "example.com", "team", "machine", "v1")
	require.NoError(f, os.MkdirAll(filepath.Dir(image), 0o755))
	require.NoError(f, os.Symlink("/", image))
	made := processOptions(f.stateDir)
	made.Enclosure = &process.Enclosure{Network: network, Images: filepath.Join(dir, "images"), EnterCommand: []string{os.Args[0], "enter"}}
	sb, err := process.New(made)
	require.NoError(f, err)

	listener, err := new(net.ListenConfig).Listen(f.Context(), "tcp", "127.0.0.1:0")
	require.NoError(f, err)
	port, ok := listener.Addr().(*net.TCPAddr)
	require.True(f, ok)
	opts := options(f.name, f.stateDir, f.identity(), sb)
	opts.KubeletPort, opts.Dial = int32(port.Port), network.DialContext //nolint:gosec // ports are below 65536
	opts.APIService = netip.AddrPortFrom(netip.MustParseAddr(controlplane.ServiceAddress), 443)
	opts.Capacity[corev1.ResourcePods] = resource.MustParse("200")
	agent, err := node.New(opts)
	require.NoError(f, err)
	f.background("the agent", agent.Run)
	server, err := kubeletapi.New(kubeletapi.Options{
		Node: f.name, Config: f.identity(), Pods: agent, Sandbox: sb, Certificate: f.servingCertificate(dir), Roots: f.clientAuthority(),
	})
	require.NoError(f, err)
	f.background("the server of logs", func(ctx context.Context) error { return server.Serve(ctx, listener) })
}

// background runs a part of the node until the test ends.
func (f *fixture) background(what string, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	f.Cleanup(func() {
		cancel()
		require.NoError(f, await.Result(done, what+" stops"))
	})
}

func (f *fixture) clientAuthority() func() *x509.CertPool {
	roots, err := identity.AuthoritiesFromFile(f.env.Plane.ClientAuthority())
	require.NoError(f, err)
	return roots
}

// servingCertificate is one that the API server accepts: as an administrator would, the test approves the node's request.
func (f *fixture) servingCertificate(dir string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	serving, err := identity.OpenServing(identity.ServingOptions{
		Name: f.name, Address: net.IPv4(127, 0, 0, 1), Config: f.identity(), Dir: filepath.Join(dir, "certificates"),
	})
	require.NoError(f, err)
	f.Cleanup(serving.Close)
	requests := f.kube.CertificatesV1().CertificateSigningRequests()
	require.Eventually(f, func() bool {
		list, err := requests.List(f.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for i := range list.Items {
			request := &list.Items[i]
			if request.Spec.Username != identity.UserPrefix+f.name || len(request.Status.Conditions) > 0 {
				continue
			}
			request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
			if _, err := requests.UpdateApproval(f.Context(), request.Name, request, metav1.UpdateOptions{}); err != nil {
				return false
			}
		}
		return serving.Signed()
	}, patience, 50*time.Millisecond)
	return serving.Certificate
}
