//go:build unix

package mactest

import (
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/mac"
)

// SSH is a genuine OpenSSH server before a Mac. New connections come from a source that the packet filter judges: see SetSource.
type SSH struct {
	*mac.SSHD
	t *testing.T
	// Address is host:port.
	Address string
	// PrivateKey is that of the user, in OpenSSH's PEM.
	PrivateKey []byte
}

// DefaultSource is where connections come from unless a test says otherwise: the host's own network.
var DefaultSource = netip.MustParseAddr("10.0.0.9")

// SSH starts a server for the Mac. It ends with the test.
func (m *Mac) SSH(t *testing.T) *SSH {
	t.Helper()
	server, err := m.Root.StartSSHD(t.Context(), t.TempDir(), 0, m.User, DefaultSource)
	require.NoError(t, err)
	t.Cleanup(func() {
		server.Close()
		if t.Failed() {
			t.Logf("sshd said:\n%s", server.Log())
		}
	})
	key, err := os.ReadFile(server.KeyFile)
	require.NoError(t, err)
	return &SSH{SSHD: server, t: t, Address: server.Address(), PrivateKey: key}
}

// HostKey is the fingerprint of the server's host key, SHA256:….
func (s *SSH) HostKey() string {
	s.t.Helper()
	fingerprint, err := s.Fingerprint(s.t.Context())
	require.NoError(s.t, err)
	return fingerprint
}

// NewHostKey gives the server another host key.
func (s *SSH) NewHostKey() {
	s.t.Helper()
	require.NoError(s.t, s.RotateHostKey(s.t.Context()))
}
