package e2e

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// consoleOpens follows the link that `bullpen console` prints, under the roles that are shipped.
func consoleOpens(t *testing.T, dir string) {
	t.Helper()
	link, stderr, code := run(t, "console", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	at, err := url.Parse(strings.TrimSpace(link))
	require.NoError(t, err)
	fragment, err := url.ParseQuery(at.Fragment)
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, Timeout: patience}
	read := func(resp *http.Response, err error) string {
		t.Helper()
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
		return string(text)
	}
	base := at.Scheme + "://" + at.Host
	require.Contains(t, read(client.PostForm(base+"/ui/login", url.Values{"code": {fragment.Get("code")}})), "<h1>Overview</h1>")
	for path, says := range map[string]string{
		"/ui/accounts": ">acme</a>", "/ui/jobs?ended=true": "success", "/ui/audit": "set limits", "/ui/recovery": "unclaimed job", "/ui/pools": "default",
		"/ui/nodes": "Idle",
	} {
		require.Contains(t, read(client.Get(base+path)), says, path)
	}
}
