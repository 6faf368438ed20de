package steps

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

type entry struct {
	name, content, link string
	mode                fs.FileMode
}

var goodTart = []entry{
	{name: "./LICENSE", content: "text", mode: 0o644},
	{name: "tart.app/", mode: fs.ModeDir | 0o755},
	{name: "tart.app/Contents/MacOS/tart", content: "program", mode: 0o755},
	{name: "tart.app/Contents/Frameworks/A/Versions/1/lib", content: "lib", mode: 0o755},
	{name: "tart.app/Contents/Frameworks/A/Current", link: "Versions/1", mode: fs.ModeSymlink | 0o777},
	{name: "tart.app/Contents/back", link: "../Contents/MacOS", mode: fs.ModeSymlink | 0o777},
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	w := tar.NewWriter(zipped)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.content)), Linkname: e.link, Typeflag: tar.TypeReg}
		switch {
		case e.mode.IsDir():
			header.Typeflag = tar.TypeDir
		case e.mode&fs.ModeSymlink != 0:
			header.Typeflag = tar.TypeSymlink
		case e.mode&fs.ModeDevice != 0:
			header.Typeflag = tar.TypeChar
		case e.link != "":
			header.Typeflag = tar.TypeLink
		}
		require.NoError(t, w.WriteHeader(header))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(w.Close(), zipped.Close()))
	return archive.Bytes()
}

func zipOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		header.SetMode(e.mode)
		f, err := w.CreateHeader(header)
		require.NoError(t, err)
		_, err = io.WriteString(f, e.content+e.link)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return archive.Bytes()
}

func sha(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func newTartHost(t *testing.T) *scripted {
	requireRoot(t)
	h := newScripted(t)
	h.fails(xattr, 1, "No such xattr: com.apple.quarantine")
	h.fails(TartPath, 1, "root has started another user's program")
	h.programs[sudoProgram] = func(args, _ string) machost.Result {
		if args != "-n -H -u ci "+TartPath+" --version" && args != "-n -H -u ci "+brewTart+" --version" {
			return machost.Result{ExitCode: 1, Stderr: []byte(args)}
		}
		return machost.Result{Stdout: []byte("2.30.0\n")}
	}
	return h
}

func tartOf(t *testing.T, archive string, digest string, client *http.Client) machost.Step {
	t.Helper()
	step, err := newTart(machost.Payload{Config: machost.Config{User: "ci", Hostname: "mac-1", Tart: machost.Tart{Archive: archive, SHA256: digest}}.Default()},
		Facts{HTTP: client}.withDefaults())
	require.NoError(t, err)
	return step
}

func TestTart_InstallsSwitchesAndCleansUp(t *testing.T) {
	h := newTartHost(t)
	first := tarOf(t, goodTart...)
	h.put("/tmp/tart.tar.gz", string(first), 0o644)
	h.put(TartPath, "an administrator's file", 0o755)
	changed, err := h.converge(tartOf(t, "/tmp/tart.tar.gz", strings.ToUpper(sha(first)), nil))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "program", h.content(TartPath), "the link leads to it")
	require.Equal(t, "lib", h.content("/usr/local/bullpen/tart/"+sha(first)[:12]+"/tart.app/Contents/Frameworks/A/Current/lib"))
	names, err := h.ReadDir(tartVersions)
	require.NoError(t, err)
	require.Equal(t, []string{sha(first)[:12]}, names, "nothing is left beside it")
	info, err := h.Stat("/usr/local/bullpen/tart/" + sha(first)[:12] + "/LICENSE")
	require.NoError(t, err)
	require.Equal(t, machost.Attributes{Mode: 0o644}, info.Attributes, "root's")

	// A machine runs from the first version: it stays, until none does.
	second := zipOf(t, append([]entry{{name: "new", content: "x", mode: 0o600}}, goodTart...)...)
	h.put("/tmp/tart.zip", string(second), 0o644)
	h.says("/bin/ps", "/usr/local/bin/tart run bullpen-1 --no-graphics\n")
	_, err = h.converge(tartOf(t, "/tmp/tart.zip", sha(second), nil))
	require.NoError(t, err)
	info, err = h.Stat(TartPath)
	require.NoError(t, err)
	require.Contains(t, info.Target, sha(second)[:12])
	names, err = h.ReadDir(tartVersions)
	require.NoError(t, err)
	require.Len(t, names, 2)
	h.says("/bin/ps", "/sbin/launchd\n")
	h.put(tartVersions+"/cut.new/tart.app/half", "of an apply that was killed", 0o644)
	changed, err = h.converge(tartOf(t, "/tmp/tart.zip", sha(second), nil))
	require.NoError(t, err)
	require.True(t, changed)
	names, err = h.ReadDir(tartVersions)
	require.NoError(t, err)
	require.Equal(t, []string{sha(second)[:12]}, names)
}

func TestTart_AnotherArchiveThanAskedForIsNotUnpacked(t *testing.T) {
	h := newTartHost(t)
	h.put("/tmp/tart.tar.gz", string(tarOf(t, goodTart...)), 0o644)
	_, err := h.converge(tartOf(t, "/tmp/tart.tar.gz", sha([]byte("another")), nil))
	var wrong *DigestError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "tart.sha256")
	names, err := h.ReadDir(tartVersions)
	require.NoError(t, err)
	require.Empty(t, names, "not even the archive is kept")
	_, err = h.Stat(TartPath)
	require.True(t, isMissing(err))
}

func TestTart_RefusesAnArchiveThatLeadsOutOfItsFolder(t *testing.T) {
	link := func(name, to string) entry { return entry{name: name, link: to, mode: fs.ModeSymlink | 0o777} }
	file := func(name string) entry { return entry{name: name, content: "evil", mode: 0o755} }
	for name, evil := range map[string][]entry{
		"upwards":                          {file("../../../../etc/evil")},
		"upwards in the middle":            {file("tart.app/../../evil")},
		"absolute":                         {file("/etc/evil")},
		"by a link out":                    {link("out", "../../../../etc")},
		"by an absolute link":              {link("out", "/etc")},
		"through a link":                   {link("in", "tart.app"), file("in/evil")},
		"through a link by another name":   {link("In", "tart.app"), file("iN/evil")},
		"by links that shorten each other": {link("x", "."), link("y", "x/x/x/../../..")},
		"with a backslash":                 {file(`..\evil`)},
	} {
		for kind, make := range map[string]func(*testing.T, ...entry) []byte{"tar.gz": tarOf, "zip": zipOf} {
			t.Run(name+" in "+kind, func(t *testing.T) {
				h := newTartHost(t)
				archive := make(t, append(append([]entry{}, goodTart...), evil...)...)
				h.put("/tmp/tart."+kind, string(archive), 0o644)
				_, err := h.converge(tartOf(t, "/tmp/tart."+kind, sha(archive), nil))
				var escape *EscapeError
				require.ErrorAs(t, err, &escape)
				names, err := h.ReadDir(tartVersions)
				require.NoError(t, err)
				require.Empty(t, names)
				_, err = h.Stat("/etc")
				require.True(t, isMissing(err))
			})
		}
	}
	for name, odd := range map[string][]entry{
		"a device":         {{name: "dev", mode: fs.ModeDevice | fs.ModeCharDevice}},
		"a hard link":      {{name: "hard", link: "tart.app/Contents/MacOS/tart"}},
		"no Tart":          nil,
		"Tart as a folder": {{name: "tart.app/Contents/MacOS/tart/x", content: "x", mode: 0o755}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTartHost(t)
			entries := odd
			if len(odd) > 0 && odd[0].name != "tart.app/Contents/MacOS/tart/x" {
				entries = append(append([]entry{}, goodTart...), odd...)
			}
			archive := tarOf(t, entries...)
			h.put("/tmp/tart.tar.gz", string(archive), 0o644)
			_, err := h.converge(tartOf(t, "/tmp/tart.tar.gz", sha(archive), nil))
			require.ErrorContains(t, err, "Use the archive of a Tart release")
		})
	}
}

func TestTart_IsFetchedByHTTPSAlone(t *testing.T) {
	archive := tarOf(t, goodTart...)
	var plain *httptest.Server
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved/tart.tar.gz":
			http.Redirect(w, r, "/tart.tar.gz", http.StatusFound)
		case "/plain/tart.tar.gz":
			http.Redirect(w, r, plain.URL+"/tart.tar.gz", http.StatusFound)
		case "/cut/tart.tar.gz":
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write(archive[:100])
		case "/tart.tar.gz":
			_, _ = w.Write(archive)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(secure.Close)
	plain = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }))
	t.Cleanup(plain.Close)
	h := newTartHost(t)
	for path, want := range map[string]string{
		"/plain/tart.tar.gz?token=s3cr3t": "not https",
		"/none/tart.tar.gz?token=s3cr3t":  "404",
		"/cut/tart.tar.gz?token=s3cr3t":   "unexpected EOF",
	} {
		_, err := h.converge(tartOf(t, secure.URL+path, sha(archive), secure.Client()))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cr3t")
		names, err := h.ReadDir(tartVersions)
		if !isMissing(err) {
			require.NoError(t, err)
		}
		require.Empty(t, names)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, err := h.converge(tartOf(t, strings.Replace(gone.URL, "http:", "https:", 1)+"/tart.tar.gz?token=s3cr3t", sha(archive), nil))
	require.ErrorContains(t, err, "/tart.tar.gz")
	require.NotContains(t, err.Error(), "s3cr3t")
	changed, err := h.converge(tartOf(t, secure.URL+"/moved/tart.tar.gz", sha(archive), secure.Client()))
	require.NoError(t, err)
	require.True(t, changed)
}

func TestTart_WithoutAnArchiveItIsLookedFor(t *testing.T) {
	h := newTartHost(t)
	_, err := h.converge(tartOf(t, "", "", nil))
	require.ErrorContains(t, err, "brew install cirruslabs/cli/tart")
	h.put(brewTart, "program", 0o755)
	changed, err := h.converge(tartOf(t, "", "", nil))
	require.NoError(t, err)
	require.False(t, changed)
	h.fails(sudoProgram, 9, "killed")
	_, err = h.converge(tartOf(t, "", "", nil))
	require.ErrorContains(t, err, "starting Tart", "HOST-3: it is proven that it starts")
}

func TestBoundedReader_EndsAtTheBoundOverAllEntries(t *testing.T) {
	left := int64(10)
	_, err := io.ReadAll(&boundedReader{from: strings.NewReader("12345678"), left: &left})
	require.NoError(t, err)
	_, err = io.ReadAll(&boundedReader{from: strings.NewReader("12345678"), left: &left})
	require.ErrorContains(t, err, "unpacks to more")
}
