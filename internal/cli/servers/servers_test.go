package servers_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/servers"
)

const example = `# servers of the team
current: production
servers:
  production:
    url: https://bullpen.example.com
    caFile: /etc/ca.crt
    context: prod
    namespace: bullpen-system
  lab:
    kubeconfig: /home/ada/lab.kubeconfig
    context: "1"
  here: {stateDir: /var/lib/bullpen/onebox}
  plain:
`

func TestParse_ReadsEveryField(t *testing.T) {
	file, err := servers.Parse("config.yaml", []byte(example))
	require.NoError(t, err)
	require.Equal(t, servers.File{Current: "production", Servers: map[string]servers.Server{
		"production": {URL: "https://bullpen.example.com", CAFile: "/etc/ca.crt", Context: "prod", Namespace: "bullpen-system"},
		"lab":        {Kubeconfig: "/home/ada/lab.kubeconfig", Context: "1"},
		"here":       {StateDir: "/var/lib/bullpen/onebox"},
		"plain":      {},
	}}, file)
	require.Equal(t, []string{"here", "lab", "plain", "production"}, file.Names())
	for _, empty := range []string{"", "# nothing\n", "---\n", "null\n", "servers:\n", "servers: {}\n"} {
		file, err := servers.Parse("config.yaml", []byte(empty))
		require.NoError(t, err, empty)
		require.Empty(t, file.Servers, empty)
	}
}

func TestParse_MistakesHaveALine(t *testing.T) {
	for text, says := range map[string]string{
		"server: {}\n":                                                  `c:1: unknown field "server" of the file. Did you mean servers?`,
		"servers:\n  a:\n    ulr: https://x\n":                          `c:3: unknown field "ulr" of server a. Did you mean url?`,
		"servers:\n  a:\n    token: x\n":                                `c:3: unknown field "token" of server a`,
		"servers:\n  a:\n    context: 5\n":                              "c:3: context must be a string. Numbers, true and false need quotes",
		"servers:\n  a:\n    context: [x]\n":                            "c:3: context must be a string. Numbers, true and false need quotes",
		"servers:\n  a:\n    context:\n":                                "c:3: context must be a string. Numbers, true and false need quotes",
		"servers:\n  a:\n    context: ''\n":                             "c:3: context is empty. Remove the line",
		"servers:\n  a:\n    context: \"x\\ny\"\n":                      "c:3: context must not contain control characters",
		"servers:\n  a: {}\n  a: {}\n":                                  `c:3: "a" is there twice`,
		"servers:\n  a: &x {}\n  b: *x\n":                               "c:3: aliases and merged mappings are not supported",
		"servers: []\n":                                                 "c:1: servers must be a mapping",
		"- a\n":                                                         "c:1: the file must be a mapping",
		"servers: {}\n---\nservers: {}\n":                               "c:2: the file must have one YAML document",
		"servers:\n  a/b: {}\n":                                         `c:2: invalid server name "a/b": expected letters, digits, dots, dashes and underscores, such as production`,
		"current: b\nservers:\n  a: {}\n":                               `c:1: current names the server "b", which is not in servers`,
		"servers:\n  a:\n    url: http://x\n":                           "c:2: server a: http://x would send your token unencrypted. Use https, or no --server: the command then forwards a port to the release in your kubeconfig's cluster",
		"servers:\n  a:\n    url: https://ada:pw@x\n":                   `c:2: server a: invalid server URL "https://ada:xxxxx@x": expected https://bullpen.example.com or http://127.0.0.1:8082`,
		"servers:\n  a:\n    url: https://x\n    stateDir: /s\n":        "c:2: server a: stateDir and url exclude each other: give one of them",
		"servers:\n  a:\n    stateDir: /s\n    context: x\n":            "c:2: server a: stateDir and context exclude each other: give one of them",
		"servers:\n  a:\n    stateDir: s\n":                             `c:2: server a: stateDir must be an absolute path, got "s"`,
		"servers:\n  a:\n    url: http://127.0.0.1:1\n    caFile: /c\n": `c:2: server a: caFile needs a URL that begins with https://, got "http://127.0.0.1:1"`,
	} {
		_, err := servers.Parse("c", []byte(text))
		require.EqualError(t, err, says, text)
		var mistake *servers.Error
		require.ErrorAs(t, err, &mistake, text)
	}
	_, err := servers.Parse("c", []byte("servers:\n  a: {\n"))
	require.ErrorContains(t, err, "c: invalid YAML: line ")
}

func TestFile_Changes(t *testing.T) {
	empty := servers.File{}
	one := empty.With("lab", servers.Server{Context: "lab"})
	one.Current = "lab"
	two := one.With("production", servers.Server{Context: "prod"})
	require.Empty(t, empty.Servers)
	require.Equal(t, []string{"lab"}, one.Names(), "a change changes a copy")
	require.Equal(t, []string{"lab", "production"}, two.Names())
	require.Equal(t, "lab", two.Without("production").Current)
	require.Empty(t, two.Without("lab").Current, "what is not there is not current")
	require.Equal(t, []string{"lab", "production"}, two.Names())
	_, err := two.Find("prodution", "c")
	require.EqualError(t, err, `server "prodution" not found in c. Did you mean production?`)
	_, err = two.Find("bullpen.example.com", "c")
	require.EqualError(t, err, "server \"bullpen.example.com\" not found in c. `bullpen config get-servers` lists servers; a URL begins with https://")
}

func TestPath_Precedence(t *testing.T) {
	env := map[string]string{}
	path := func() string {
		path, err := servers.Path(func(name string) string { return env[name] })
		require.NoError(t, err)
		return path
	}
	_, err := servers.Path(func(string) string { return "" })
	require.ErrorContains(t, err, "set BULLPEN_CONFIG, XDG_CONFIG_HOME or HOME")
	env["HOME"] = "/home/ada"
	require.Equal(t, "/home/ada/.config/bullpen/config.yaml", path())
	env["XDG_CONFIG_HOME"] = "relative"
	require.Equal(t, "/home/ada/.config/bullpen/config.yaml", path())
	env["XDG_CONFIG_HOME"] = "/config"
	require.Equal(t, "/config/bullpen/config.yaml", path())
	env["BULLPEN_CONFIG"] = "/elsewhere.yaml"
	require.Equal(t, "/elsewhere.yaml", path())
}

func TestSave_ReplacesTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "config.yaml")
	file, err := servers.Load(path)
	require.NoError(t, err, "a file that does not exist is empty")
	file = file.With("lab", servers.Server{Context: "lab"})
	require.NoError(t, servers.Save(path, file))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	again, err := servers.Load(path)
	require.NoError(t, err)
	require.Equal(t, file, again)

	link := filepath.Join(dir, "link.yaml")
	require.NoError(t, os.Symlink(path, link))
	file.Current = "lab"
	require.NoError(t, servers.Save(link, file))
	info, err = os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink, "the link stays")
	again, err = servers.Load(path)
	require.NoError(t, err)
	require.Equal(t, "lab", again.Current)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing else is left")

	_, err = servers.Load(dir)
	require.ErrorContains(t, err, "not a regular file")
	require.Error(t, servers.Save(filepath.Join(path, "below", "config.yaml"), file))
}

// What is read is written as it was read.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		example, "", "servers:\n  a: {url: https://x}\n", "current: a\nservers: {a: {context: '#'}}", "servers: {a: {stateDir: /x}}\n---\n", "a: &a [*a]", "servers: !!map {}",
		"servers:\n  a:\n    context: \"\\u2028\"\n", "? {a: b}\n: c\n", "<<: {servers: {}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := servers.Parse("c", text)
		if err != nil {
			return
		}
		written, err := servers.Format(file)
		require.NoError(t, err)
		again, err := servers.Parse("c", written)
		require.NoError(t, err, "%s", written)
		require.Equal(t, file, again)
	})
}
