package machost_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// A link that a user planted in the state directory, while it was his, is not followed by root: the holder's number once overwrote the file
// that such a link led to.
func TestLocker_HOST7_FollowsNoLink(t *testing.T) {
	host := machost.Local{Root: t.TempDir()}
	const sudoers = "root ALL=(ALL) ALL\n"
	require.NoError(t, host.WriteFile("/etc/sudoers", strings.NewReader(sudoers), machost.Attributes{Mode: 0o440, UID: os.Geteuid(), GID: os.Getegid()}))
	state := filepath.Join(host.Root, machost.StateDir)
	require.NoError(t, os.MkdirAll(state, 0o755))
	for name, target := range map[string]string{"absolute": filepath.Join(host.Root, "etc/sudoers"), "relative": "../../../../etc/sudoers"} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.Symlink(target, filepath.Join(state, "lock")))
			t.Cleanup(func() { require.NoError(t, os.Remove(filepath.Join(state, "lock"))) })
			_, err := host.Locker(time.Second)(t.Context(), func(string) {})
			var link *machost.LinkError
			require.ErrorAs(t, err, &link)
			content, err := host.ReadFile("/etc/sudoers")
			require.NoError(t, err)
			require.Equal(t, sudoers, string(content))
		})
	}
	unlock, err := host.Locker(time.Second)(t.Context(), func(string) {})
	require.NoError(t, err)
	unlock()
}

// A program that hangs once held the lock of the host for good.
func TestLocal_HOST7_AProgramThatHangsIsEnded(t *testing.T) {
	host := machost.Local{Root: t.TempDir(), Patience: 50 * time.Millisecond}
	require.NoError(t, host.WriteFile("/bin/hang", strings.NewReader("#!/bin/sh\nexec /bin/sleep 3600\n"),
		machost.Attributes{Mode: 0o755, UID: os.Geteuid(), GID: os.Getegid()}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := host.Run(ctx, machost.Command{Path: "/bin/hang"})
	var hung *machost.HungError
	require.ErrorAs(t, err, &hung)
	require.Equal(t, "/bin/hang", hung.Path)
	require.NoError(t, ctx.Err(), "it was ended by the host's own patience")
}

// A password in Latin-1 once became another one on the way, which macOS then refused.
func TestEncodePayload_HOST3_RefusesWhatJSONWouldChange(t *testing.T) {
	for _, secrets := range []machost.Secrets{{Password: machost.NewSecret("p\xe4ssword")}, {BootstrapKubeconfig: machost.NewSecret("token: \xff")}} {
		_, err := machost.EncodePayload(machost.Payload{Config: machost.Config{User: "ci"}, Secrets: secrets})
		require.ErrorContains(t, err, "not valid UTF-8")
		require.NotContains(t, err.Error(), "\xe4")
	}
}
