package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// trust has the supervisor trust a CA beside a bundle of the image.
func (c *container) trust(bundles ...string) (ca string) {
	c.t.Helper()
	ca = filepath.Join(c.t.TempDir(), "ca.crt")
	require.NoError(c.t, os.WriteFile(ca, []byte("\nours\n\n"), 0o600))
	c.options.CAFile, c.options.SystemBundles = ca, bundles
	c.options.Environ = slices.DeleteFunc(c.options.Environ, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == envAlsoTrusted || slices.Contains(envTrusted, name)
	})
	return ca
}

// R7: the runner and the tools of its jobs trust GitHub's CA beside what the image trusts: variables that replace the system's bundle name
// one that has both.
func TestSupervise_R7_TrustsTheCABesideTheImages(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "environ")
	system := filepath.Join(t.TempDir(), "system.crt")
	require.NoError(t, os.WriteFile(system, []byte("system"), 0o600))
	ca := c.trust(filepath.Join(t.TempDir(), "none"), system, ca404)
	c.options.Environ = append(c.options.Environ, "CURL_CA_BUNDLE=/the/images/own")
	c.stage(jitText)
	c.start()
	require.Zero(t, c.code())
	bundle := filepath.Join(c.dir, fileTrusted)
	content, err := os.ReadFile(bundle)
	require.NoError(t, err)
	require.Equal(t, "system\nours\n", string(content))
	for name, value := range map[string]string{
		"SSL_CERT_FILE": bundle, "GIT_SSL_CAINFO": bundle, "REQUESTS_CA_BUNDLE": bundle, "NODE_EXTRA_CA_CERTS": ca, "CURL_CA_BUNDLE": "/the/images/own",
	} {
		require.Equal(t, 1, strings.Count(c.out.String(), "\n"+name+"="), name)
		require.Contains(t, c.out.String(), "\n"+name+"="+value+"\n")
	}
}

const ca404 = "/never/read"

func TestSupervise_R7_AnImageWithoutCertificatesTrustsTheCAAlone(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "environ")
	c.trust(ca404)
	c.stage(jitText)
	c.start()
	require.Zero(t, c.code())
	content, err := os.ReadFile(filepath.Join(c.dir, fileTrusted))
	require.NoError(t, err)
	require.Equal(t, "ours\n", string(content))
}

// A runner that would not trust GitHub is not started, and takes no job.
func TestSupervise_R7_WithoutTheCAThereIsNoRunner(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "environ")
	require.NoError(t, os.Remove(c.trust(ca404)))
	c.start()
	require.Equal(t, 1, c.code())
	require.NoFileExists(t, filepath.Join(c.dir, "runner.idle"))
}

func TestSupervise_R7_WithoutACANothingChanges(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "environ")
	c.trust()
	c.options.CAFile = ""
	c.stage(jitText)
	c.start()
	require.Zero(t, c.code())
	require.NotContains(t, c.out.String(), "NODE_EXTRA_CA_CERTS")
	require.NoFileExists(t, filepath.Join(c.dir, fileTrusted))
}
