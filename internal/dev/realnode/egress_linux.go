package realnode

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
)

// egressConfig has the API server reach nodes, pods and Services by way of a proxy. The format is Kubernetes' EgressSelectorConfiguration.
func egressConfig(socket string) string {
	return fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`, socket)
}

// serveEgress is that proxy: it connects from a node, where kube-proxy gives the addresses of Services a meaning. namespace is the file of a
// running node's network.
func (n *network) serveEgress(ctx context.Context, socket string, namespace func() (string, error)) error {
	if err := os.RemoveAll(socket); err != nil {
		return fmt.Errorf("removing the socket of an earlier run: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listening for the API server: %w", err)
	}
	return n.serve(listener, func(ctx context.Context, client net.Conn) {
		in := bufio.NewReader(client)
		asked, err := http.ReadRequest(in)
		if err != nil || asked.Method != http.MethodConnect {
			fmt.Fprint(client, "HTTP/1.1 405 Method Not Allowed\r\n\r\n")
			return
		}
		backend, err := dialFrom(ctx, namespace, asked.Host)
		if err != nil {
			n.log.Info("the API server could not connect", "to", asked.Host, "error", err)
			fmt.Fprint(client, "HTTP/1.1 503 Service Unavailable\r\n\r\n")
			return
		}
		defer backend.Close()
		fmt.Fprint(client, "HTTP/1.1 200 Connection established\r\n\r\n")
		join(ctx, buffered{client, in}, backend)
	})
}

func dialFrom(ctx context.Context, namespace func() (string, error), address string) (conn net.Conn, err error) {
	file, err := namespace()
	if err != nil {
		return nil, err
	}
	err = netns.Within(file, func() (err error) {
		conn, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

// buffered is a connection of which a part has been read already.
type buffered struct {
	net.Conn
	from *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.from.Read(p) }

func (b buffered) CloseWrite() error {
	if half, can := b.Conn.(interface{ CloseWrite() error }); can {
		return half.CloseWrite()
	}
	return b.Close()
}
