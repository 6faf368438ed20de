package registrytest

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// DNS is a server of names.
type DNS struct {
	connection net.PacketConn

	mu      sync.Mutex
	names   map[string][]netip.Addr
	queries []string
	silent  bool
}

// StartDNS runs a server until the test ends. Names without addresses do not exist.
func StartDNS(t testing.TB, names map[string][]netip.Addr) *DNS {
	t.Helper()
	connection, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &DNS{connection: connection, names: names}
	var serving sync.WaitGroup
	serving.Go(d.serve)
	t.Cleanup(func() {
		_ = connection.Close()
		await.Return(t, serving.Wait, "the DNS server ends")
	})
	return d
}

// Resolver uses the server alone.
func (d *DNS) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", d.connection.LocalAddr().String())
	}}
}

// Set changes the addresses of a name.
func (d *DNS) Set(name string, addresses ...netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[name] = addresses
}

// Silence lets the server respond no more.
func (d *DNS) Silence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = true
}

// Queries are the names that were looked up, once each.
func (d *DNS) Queries() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, name := range d.queries {
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}

func (d *DNS) serve() {
	buffer := make([]byte, 4096)
	for {
		n, from, err := d.connection.ReadFrom(buffer)
		if err != nil {
			return
		}
		if response := d.respond(buffer[:n]); response != nil {
			_, _ = d.connection.WriteTo(response, from)
		}
	}
}

func (d *DNS) respond(query []byte) []byte {
	var message dnsmessage.Message
	if message.Unpack(query) != nil || len(message.Questions) != 1 {
		return nil
	}
	question := message.Questions[0]
	d.mu.Lock()
	defer d.mu.Unlock()
	name := strings.TrimSuffix(question.Name.String(), ".")
	d.queries = append(d.queries, name)
	if d.silent {
		return nil
	}
	message.Response, message.Additionals = true, nil
	addresses, ok := d.names[name]
	if !ok {
		message.RCode = dnsmessage.RCodeNameError
	}
	for _, address := range addresses {
		header := dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class}
		switch {
		case address.Is4() && question.Type == dnsmessage.TypeA:
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: address.As4()}})
		case address.Is6() && question.Type == dnsmessage.TypeAAAA:
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: address.As16()}})
		}
	}
	response, err := message.Pack()
	if err != nil {
		return nil
	}
	return response
}
