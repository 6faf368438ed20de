//go:build linux && !production

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// output is written by one goroutine and read by another.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestDevMac_BootsWhatPeopleCanLogInTo(t *testing.T) {
	root := filepath.Join(t.TempDir(), "mac")
	require.ErrorContains(t, runDevMac(t.Context(), devMacFlags{}, nil), "missing flag --root")
	require.ErrorContains(t, runDevMac(t.Context(), devMacFlags{root: root, source: "nowhere"}, nil), "--source")

	// Twice, because the second start finds the Mac of the first.
	for _, greeting := range []string{"password  correct horse", "password  as set when the Mac was created"} {
		ctx, cancel := context.WithCancel(t.Context())
		var said output
		done := make(chan error, 1)
		go func() { done <- runDevMac(ctx, devMacFlags{root: root, user: "ci", source: "10.0.0.9"}, &said) }()
		require.Eventually(t, func() bool { return strings.Contains(said.String(), "Interrupt this") }, time.Minute, 20*time.Millisecond)
		require.Contains(t, said.String(), greeting)
		found := regexp.MustCompile(`ssh -i (\S+) -p (\d+) ci@127.0.0.1`).FindStringSubmatch(said.String())
		require.NotNil(t, found, said.String())
		answer, err := exec.CommandContext(await.Context(t), "ssh", "-F", "none", "-i", found[1], "-p", found[2], "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
			"-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "ci@127.0.0.1", "uname -sm && id -un").CombinedOutput()
		require.NoError(t, err, "%s", answer)
		require.Equal(t, "Darwin arm64\nci\n", string(answer))
		cancel()
		require.NoError(t, await.Receive(t, done, "the command returns"))
	}
	full := filepath.Join(t.TempDir(), "full")
	require.NoError(t, os.MkdirAll(full, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(full, "file"), nil, 0o600))
	require.ErrorContains(t, runDevMac(t.Context(), devMacFlags{root: full, source: "10.0.0.9"}, nil), "is not empty")
}
