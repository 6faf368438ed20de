package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

func hostCommand(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := newHostCommand()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHostApply_BadInputSaysWhatToDo(t *testing.T) {
	root := t.TempDir()
	config := filepath.Join(root, "host.yaml")
	require.NoError(t, os.WriteFile(config, []byte("user: ci\negress: {allow: [10.0.0.0/33]}\n"), 0o600))
	for want, args := range map[string][]string{
		"[config stdin]":        {"apply", "--root", root},
		"must be text or json":  {"apply", "--root", root, "--config", config, "-o", "yaml"},
		"egress.allow[0]":       {"apply", "--root", root, "--config", config},
		"no such file":          {"apply", "--root", root, "--config", config + "x"},
		"none of the others":    {"apply", "--root", root, "--config", config, "--stdin"},
		"standard input":        {"apply", "--root", root, "--stdin"},
		"must be text or json ": {"status", "--root", root, "-o", "yaml"},
		"egress.allow[0]: \"1":  {"status", "--root", root, "--config", config},
	} {
		_, err := hostCommand(t, "", args...)
		require.ErrorContains(t, err, strings.TrimSpace(want), args)
	}
	names, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, names, 1, "nothing was made: of a bad configuration nothing is rendered")
	_, err = hostCommand(t, `{"config":{"user":"ci"},"secrets":{"pasword":"s3cr3t"}}`+"\n", "apply", "--root", root, "--stdin")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cr3t")
	if runtime.GOOS != "darwin" {
		_, err = hostCommand(t, "", "apply", "--config", config)
		require.ErrorContains(t, err, "not a Mac")
	}
}

func TestHostStatus_TellsWhatIsAppliedAndWhetherItDiffers(t *testing.T) {
	root := t.TempDir()
	out, err := hostCommand(t, "", "status", "--root", root)
	require.NoError(t, err)
	require.Contains(t, out, "No configuration is applied completely")
	config := filepath.Join(t.TempDir(), "host.yaml")
	require.NoError(t, os.WriteFile(config, []byte("user: ci\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "/usr/local/bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "/usr/local/bin/bullpen"), []byte("program"), 0o755))
	digest, err := fileSHA256(filepath.Join(root, "/usr/local/bin/bullpen"))
	require.NoError(t, err)
	_, err = machost.Apply(t.Context(), machost.Options{Host: machost.Local{Root: root}, Hash: machost.Config{User: "ci"}.DriftHash(digest), Version: "v1"})
	require.NoError(t, err)
	out, err = hostCommand(t, "", "status", "--root", root, "--config", config)
	require.NoError(t, err)
	require.Contains(t, out, "by bullpen v1")
	require.Contains(t, out, "Desired:  the same")
	require.NoError(t, os.WriteFile(config, []byte("user: ci\nlogs: {keep: 9}\n"), 0o600))
	out, err = hostCommand(t, "", "status", "--root", root, "--config", config)
	require.NoError(t, err)
	require.Contains(t, out, ": differs. `bullpen host apply --plan`")
	out, err = hostCommand(t, "", "status", "--root", root, "--config", config, "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"drift": true`)
}

func TestReadHostPassword_ReadsOneLineOfADescriptor(t *testing.T) {
	for text, want := range map[string]string{"p'\"w\n": "p'\"w", "no end": "no end", " kept \nsecond\n": " kept ", "": ""} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = io.WriteString(w, text)
		require.NoError(t, errors.Join(err, w.Close()))
		secret, err := readHostPassword(io.Discard, "ci", false, int(r.Fd()))
		require.NoError(t, err)
		require.Equal(t, want, secret.Reveal())
		runtime.KeepAlive(r)
	}
	secret, err := readHostPassword(io.Discard, "ci", false, -1)
	require.NoError(t, err)
	require.True(t, secret.Empty())
}

func TestConfirmations_TakeTheAnswerToTheQuestion(t *testing.T) {
	var asked []machost.Event
	input, answer := io.Pipe()
	confirm := confirmations(bufio.NewReader(input), func(e machost.Event) { asked = append(asked, e) })
	go func() { _, _ = io.WriteString(answer, "confirm old\nconfirm one\nconfirm two\n"); _ = answer.Close() }()
	first, over := context.WithCancel(t.Context())
	require.NoError(t, confirm(first, "one"))
	over() // the question is answered
	require.NoError(t, confirm(t.Context(), "two"))
	require.ErrorIs(t, confirm(t.Context(), "three"), errUnconfirmed, "HOST-7: whose input has ended has confirmed nothing")
	require.Len(t, asked, 3)
	require.Equal(t, "one", asked[0].Token)

	silent, _ := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, confirmations(bufio.NewReader(silent), func(machost.Event) {})(ctx, "x"), context.DeadlineExceeded)
}

func TestPrintHost_AStepALine(t *testing.T) {
	var out bytes.Buffer
	tell := printHostText(&out)
	for _, e := range []machost.Event{
		{Step: "preflight", Phase: machost.PhaseUnchanged},
		{Step: "tart", Phase: machost.PhaseDeferred, Changes: []string{"x\x1b[2Jy"}, Message: "1 virtual machines run"},
		{Step: "egress", Phase: machost.PhaseFailed, Message: "reported by the program at its end"},
		{Phase: machost.PhaseDone, Message: "nothing to do"},
	} {
		tell(e)
	}
	require.Equal(t, `ok  preflight      up to date
--  tart           deferred until no virtual machine runs
      x [2Jy
      1 virtual machines run
!!  egress         FAILED
ok  nothing to do
`, out.String())
}
