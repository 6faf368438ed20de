package realnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
)

const (
	outsidePort = 15001
	dnsPort     = 53
	dnsTimeout  = 5 * time.Second
	maxDNS      = 65535 // bytes of a message
)

// outsideRules send every TCP connection that leaves the cluster to a listener, which makes it again from the machine. Addresses of the switch
// itself stay what they are.
func outsideRules() string {
	return fmt.Sprintf(`table ip outside {
	chain out {
		type nat hook prerouting priority dstnat; policy accept;
		iifname %q meta l4proto tcp fib daddr type != local ip daddr != { %s, %s, 10.111.0.0/16 } dnat to %s:%d
	}
}
`, bridgeLink, nodeRange, podRange, gateway, outsidePort)
}

// serveOutside gives nodes and pods the way out: the machine's own, without an address or a rule of theirs in its network. There is one for TCP, and
// for DNS by UDP and TCP.
func (n *network) serveOutside(ctx context.Context, resolvers []string) error {
	command := exec.CommandContext(ctx, "nsenter", "--net="+n.file, "--", "nft", "-f", "-")
	command.Stdin = bytes.NewBufferString(outsideRules())
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("sending connections out of the cluster: %w: %s", err, bytes.TrimSpace(output))
	}
	listener, err := n.listen(ctx, netip.AddrPortFrom(gateway, outsidePort))
	if err != nil {
		return err
	}
	if err := n.serve(listener, n.passOut); err != nil {
		return err
	}
	return n.serveDNS(ctx, resolvers)
}

func (n *network) passOut(ctx context.Context, client net.Conn) {
	to, err := originalDestination(client)
	if err != nil || to.Addr() == gateway { // a connection to the listener itself
		n.log.Warn("a connection out of the cluster has no destination", "error", err)
		return
	}
	backend, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		n.log.Info("a connection out of the cluster failed", "to", to.String(), "error", err)
		return
	}
	defer backend.Close()
	join(ctx, client, backend)
}

// originalDestination is the address that a connection had before the rules changed it.
func originalDestination(conn net.Conn) (netip.AddrPort, error) {
	raw, is := conn.(syscall.Conn)
	if !is {
		return netip.AddrPort{}, errors.New("it is no socket")
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var to netip.AddrPort
	var failed error
	err = control.Control(func(fd uintptr) {
		// The option's value is a sockaddr_in, which has the size of this structure's first part.
		value, err := unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			failed = os.NewSyscallError("getsockopt", err)
			return
		}
		b := value.Multiaddr
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
	})
	return to, errors.Join(err, failed)
}

// serveDNS passes queries on to the machine's resolvers, as they are.
func (n *network) serveDNS(ctx context.Context, resolvers []string) error {
	if len(resolvers) == 0 {
		return nil
	}
	at := netip.AddrPortFrom(gateway, dnsPort)
	if err := n.forward(ctx, at, net.JoinHostPort(resolvers[0], "53")); err != nil {
		return err
	}
	var socket net.PacketConn
	err := netns.Within(n.file, func() (err error) {
		socket, err = new(net.ListenConfig).ListenPacket(ctx, "udp", at.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("listening for DNS queries: %w", err)
	}
	n.parts.Go(func() {
		defer context.AfterFunc(n.ctx, func() { _ = socket.Close() })()
		query := make([]byte, maxDNS)
		for {
			size, from, err := socket.ReadFrom(query)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // of one query
			}
			asked := bytes.Clone(query[:size])
			n.parts.Go(func() {
				answer, err := resolve(n.ctx, resolvers, asked)
				if err != nil {
					n.log.Info("a DNS query failed", "error", err)
					return
				}
				_, _ = socket.WriteTo(answer, from) // the client may have ended
			})
		}
	})
	return nil
}

// resolve asks the resolvers one after the other.
func resolve(ctx context.Context, resolvers []string, query []byte) ([]byte, error) {
	var errs []error
	for _, resolver := range resolvers {
		answer, err := ask(ctx, resolver, query)
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func ask(ctx context.Context, resolver string, query []byte) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(resolver, "53"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(dnsTimeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	answer := make([]byte, maxDNS)
	size, err := conn.Read(answer)
	return answer[:size], err
}

// resolverFile is the file that /etc/resolv.conf is.
func resolverFile() string {
	const usual = "/etc/resolv.conf"
	if target, err := filepath.EvalSymlinks(usual); err == nil {
		return target
	}
	return usual
}

// hostResolvers are those of this machine.
func hostResolvers() []string {
	file, err := os.Open(resolverFile())
	if err != nil {
		return nil // no name can be resolved here either
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 1<<16))
	if err != nil {
		return nil
	}
	return parseResolvers(string(text))
}
