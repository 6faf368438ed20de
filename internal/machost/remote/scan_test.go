package remote

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

// token is the one of kubeconfig, as YAML means it.
const token = `bootstrap.tökén'with-odd"content`

// needles are the secrets of a test in all forms that are searched for.
func needles(t *testing.T) map[string][]byte {
	t.Helper()
	file, err := autologin.Encode(password)
	require.NoError(t, err)
	found := map[string][]byte{}
	for name, secret := range map[string]string{"password": password, "kcpassword": string(file), "token": token, "token as YAML": strings.Split(kubeconfig, `"`)[3]} {
		raw := []byte(secret)
		quoted, err := json.Marshal(secret)
		require.NoError(t, err)
		var read string // of bytes that are no text it leaves marks
		require.NoError(t, json.Unmarshal(quoted, &read))
		for form, text := range map[string]string{
			"": secret, "base64": base64.RawStdEncoding.EncodeToString(raw[:len(raw)/3*3]), "base64url": base64.RawURLEncoding.EncodeToString(raw[:len(raw)/3*3]),
			"hex": hex.EncodeToString(raw), "read from JSON": read, "JSON": strings.Trim(string(quoted), `"`), "URL": url.QueryEscape(secret), "shell": strings.ReplaceAll(secret, "'", `'\''`),
		} {
			found[strings.TrimSpace(name+" "+form)] = []byte(text)
		}
	}
	return found
}

// mayHold are the files on a host that hold a secret, and that only their owner may read.
var mayHold = []string{"/private/etc/kcpassword", "/usr/local/var/bullpen/bootstrap.kubeconfig"}

// leaks searches all output, and all files on the host, for secrets.
func (m *model) leaks(t *testing.T) []string {
	t.Helper()
	wanted := needles(t)
	var found []string
	search := func(where string, content []byte) {
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			if bytes.Contains(content, wanted[name]) {
				found = append(found, where+": "+name)
			}
		}
	}
	search("errors and results", []byte(m.said.String()))
	search("events", []byte(encoded(t, m.seen.everything())))
	search("events, unquoted", fmt.Appendf(nil, "%+v", m.seen.everything()))
	search("log of sshd", []byte(m.ssh.Log()))
	for _, call := range m.Calls() {
		search("arguments of "+call.Name, []byte(strings.Join(call.Args, " ")))
		search("arguments of "+call.Name, []byte(strings.Join(call.Args, "")))
	}
	files := 0
	require.NoError(t, filepath.WalkDir(string(m.Root), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // it has gone meanwhile
		}
		info, err := entry.Info()
		if err != nil || info.Size() > 1<<20 { // programs
			return nil //nolint:nilerr // as above
		}
		logical := strings.TrimPrefix(path, string(m.Root))
		if slices.Contains(mayHold, logical) && info.Mode().Perm() == 0o600 {
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil {
			files++
			search("file "+logical, content)
		}
		return nil
	}))
	require.Greater(t, files, 10, "what was searched?")
	return found
}

func (e *events) everything() []machost.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// encoded is a text that has all of a value.
func encoded(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// The whole way with a node agent, which has no API server to reach: whatever comes of that, every secret was in use.
func TestModel_HOST6_NoSecretIsWhereNobodyMayFindIt(t *testing.T) {
	m := newModel(t)
	archive, digest := mactest.TartArchive(t)
	content, err := os.ReadFile(archive)
	require.NoError(t, err)
	m.WriteFile("/Users/ci/tart.tar.gz", string(content), 0o644)
	m.config.Tart = machost.Tart{Archive: "/Users/ci/tart.tar.gz", SHA256: digest}
	m.config.Node = machost.Node{}
	_, err = m.bootstrap(t, m.options(t))
	t.Log(err)
	for _, path := range mayHold {
		require.FileExists(t, m.Root.Path(path), "the secret has not got there, and the scan says little")
	}
	require.Empty(t, m.leaks(t))

	// With one that is refused, too, and with what a program of macOS says that repeats what it was given.
	m.secrets.Password = machost.NewSecret(password + password)
	o := m.options(t)
	m.Run("root", "/bin/rm", "-f", "/etc/sudoers.d/bullpen-ci")
	_, err = m.bootstrap(t, o)
	require.Error(t, err)
}

// The control: the scan finds each form, wherever it is planted.
func TestModel_HOST6_TheScanFindsWhatIsPlanted(t *testing.T) {
	m := newModel(t)
	require.Empty(t, m.leaks(t))
	planted := needles(t)
	for name, needle := range planted {
		m.WriteFile("/Users/ci/planted "+name, "x"+string(needle)+"y", 0o644)
		m.seen.add(machost.Event{Message: "x" + string(needle)})
		fmt.Fprintf(&m.said, "x%s", needle)
		if !bytes.ContainsRune(needle, 0) { // no argument can hold that
			_, _, _ = m.Try("ci", "", "/usr/bin/id", string(needle))
		}
	}
	all := m.leaks(t)
	for name, needle := range planted {
		require.Contains(t, all, "file /Users/ci/planted "+name+": "+name)
		require.Contains(t, all, "events, unquoted: "+name)
		require.Contains(t, all, "errors and results: "+name)
		if utf8.Valid(needle) && !bytes.ContainsRune(needle, 0) {
			require.Contains(t, all, "arguments of id: "+name)
		}
		require.NoError(t, os.Remove(m.Root.Path("/Users/ci/planted "+name))) // for the scan after the test
	}
	m.seen = events{}
	m.said.Reset()
	calls, err := filepath.Glob(filepath.Join(string(m.Root), "*", "calls.jsonl"))
	require.NoError(t, err)
	require.Len(t, calls, 1)
	require.NoError(t, os.Remove(calls[0])) // for the scan after the test
}
