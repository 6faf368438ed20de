package image

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
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

// What the client does today stays below these limits of an exchange, so they are tested without it.
func TestExchange_LimitsAllRequestsAndBytes(t *testing.T) {
	block := bytes.Repeat([]byte("x"), maxBody)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(block)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	policy, err := imagename.ParsePolicy(nil, []string{"http://" + host})
	require.NoError(t, err)
	get := func(e *exchange, path string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		response, err := e.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	options := New(Options{}).options

	e := newExchange(imagename.Name{Registry: host}, nil, policy, &options)
	defer e.close()
	for range maxRequests {
		require.NoError(t, get(e, "/"))
	}
	var limit *limitError
	require.ErrorAs(t, get(e, "/"), &limit)
	require.Equal(t, "more than 24 requests for one image", limit.what)

	e = newExchange(imagename.Name{Registry: host}, nil, policy, &options)
	defer e.close()
	for range maxBytes / maxBody {
		require.NoError(t, get(e, "/large"))
	}
	require.ErrorAs(t, get(e, "/large"), &limit)
	require.Equal(t, "more than 4194304 bytes for one image", limit.what)
}

func TestExchange_LayersHaveABound(t *testing.T) {
	e := newExchange(imagename.Name{}, nil, imagename.Policy{}, &Options{})
	var layers []descriptor
	for i := range 1000 {
		layers = append(layers, descriptor{Digest: fmt.Sprint(i / 2)}) // each twice
	}
	require.Len(t, e.expectLayers(layers), 128)
	require.Equal(t, 24+3*128, e.allowed)
}
