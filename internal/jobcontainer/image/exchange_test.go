package image

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Search domains of the controller's pod would lead postgres.database to a Service of that name.
func TestAbsolute_KeepsSearchDomainsFromNamesOfWorkflows(t *testing.T) {
	for _, test := range []struct {
		host  string
		named bool
		want  string
	}{
		{"ghcr.io", false, "ghcr.io."},
		{"postgres.database", false, "postgres.database."},
		{"registry", false, "registry."},
		{"registry.harbor", true, "registry.harbor"},
		{"localhost", false, "localhost"},
		{"10.0.0.1", false, "10.0.0.1"},
		{"fd00::1", false, "fd00::1"},
	} {
		require.Equal(t, test.want, absolute(test.host, test.named))
	}
}

func TestWithPort(t *testing.T) {
	for text, want := range map[string]string{
		"http://proxy": "proxy:80", "https://proxy": "proxy:443", "socks5://proxy": "proxy:1080", "http://proxy:3128": "proxy:3128", "http://[::1]:8": "[::1]:8",
	} {
		u, err := url.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, withPort(u))
	}
}
