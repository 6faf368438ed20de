package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of bullpen config, one after the other on one file.
func TestConfig_Commands(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "config.yaml")
	t.Setenv("BULLPEN_CONFIG", path)
	t.Chdir(dir)
	config := func(args ...string) (string, error) {
		root, out := newRootCommand(), bytes.Buffer{}
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append([]string{"config"}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	says := func(want string, args ...string) {
		t.Helper()
		out, err := config(args...)
		require.NoError(t, err, args)
		require.Equal(t, want, out, args)
	}
	fails := func(want string, args ...string) {
		t.Helper()
		_, err := config(args...)
		require.EqualError(t, err, want, args)
	}
	says("No servers in "+path+". `bullpen config set-server NAME --context CONTEXT` adds one.\n", "get-servers")
	says("Server production added. `bullpen config use-server production` makes it the current one.\n", "set-server", "production", "--context", "prod")
	says("production is the current server.\n", "use-server", "production")
	says("Server lab added.\n", "set-server", "lab", "--url", "https://lab.example.com", "--ca-file", "ca.crt")
	says("Server production changed.\n", "set-server", "production", "--namespace", "team-b")
	says("CURRENT   NAME         SERVER                    CONTEXT   NAMESPACE\n"+
		"          lab          https://lab.example.com   -         -\n"+
		"*         production   port-forward              prod      team-b\n", "get-servers")
	says("current: production\nservers:\n  lab:\n    url: https://lab.example.com\n    caFile: "+filepath.Join(dir, "ca.crt")+
		"\n  production:\n    context: prod\n    namespace: team-b\n", "view")
	says("Server lab changed.\n", "set-server", "lab", "--ca-file", "")
	says("Server production removed. No server is the current one now.\n", "delete-server", "production")
	says("servers:\n  lab:\n    url: https://lab.example.com\n", "view")

	fails("server \"lap\" not found in "+path+". Did you mean lab?", "use-server", "lap")
	fails("server \"lap\" not found in "+path+". Did you mean lab?", "delete-server", "lap")
	fails("stateDir and url exclude each other: give one of them", "set-server", "lab", "--state-dir", "/x")
	fails("invalid server name \"https://x\": expected letters, digits, dots, dashes and underscores, such as production", "set-server", "https://x")
	fails("missing argument SERVER: write `bullpen config use-server SERVER`. `bullpen config get-servers` lists servers.", "use-server")
	says("servers:\n  lab:\n    url: https://lab.example.com\n", "view")
	require.NoError(t, os.WriteFile(path, []byte("servers:\n  lab: {urls: x}\n"), 0o600))
	fails(path+":2: unknown field \"urls\" of server lab. Did you mean url?", "set-server", "lab", "--context", "x")
}
