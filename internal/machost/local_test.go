package machost_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func own(mode fs.FileMode) machost.Attributes {
	return machost.Attributes{Mode: mode, UID: os.Geteuid(), GID: os.Getegid()}
}

func TestLocal_WritesAFileAsAWhole(t *testing.T) {
	h := machost.Local{Root: t.TempDir()}
	require.NoError(t, h.WriteFile("/etc/new/file", strings.NewReader("one"), own(0o640)))
	info, err := h.Stat("/etc/new/file")
	require.NoError(t, err)
	require.Equal(t, machost.FileInfo{Attributes: own(0o640), Size: 3}, info)
	info, err = h.Stat("/etc/new")
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode)

	// The remains of a crash are overwritten, whatever they are.
	require.NoError(t, os.MkdirAll(filepath.Join(h.Root, "/etc/new/.file.bullpen-new/x"), 0o700))
	require.NoError(t, h.WriteFile("/etc/new/file", strings.NewReader("two"), own(0o600)))
	require.Equal(t, []string{"file"}, names(t, h, "/etc/new"))

	// Whatever fails in the middle changes nothing.
	broken := errors.New("the line went dead")
	err = h.WriteFile("/etc/new/file", iotest.TimeoutReader(iotest.ErrReader(broken)), own(0o600))
	require.ErrorIs(t, err, broken)
	content, err := h.ReadFile("/etc/new/file")
	require.NoError(t, err)
	require.Equal(t, "two", string(content))
	require.Equal(t, []string{"file"}, names(t, h, "/etc/new"))
}

func names(t *testing.T, h machost.Host, dir string) []string {
	t.Helper()
	names, err := h.ReadDir(dir)
	require.NoError(t, err)
	return names
}

func TestLocal_SaysWhatIsNotThere(t *testing.T) {
	h := machost.Local{Root: t.TempDir()}
	for name, err := range map[string]error{
		"read":    second(h.ReadFile("/no/such")),
		"stat":    second(h.Stat("/no/such")),
		"open":    second(h.Open("/such")),
		"readdir": second(h.ReadDir("/such")),
		"rename":  h.Rename("/such", "/other"),
	} {
		require.ErrorIs(t, err, fs.ErrNotExist, name)
		require.NotContains(t, err.Error(), h.Root, "%s: paths are the host's own", name)
		var of *fs.PathError
		require.ErrorAs(t, err, &of, name)
	}
	require.NoError(t, h.Remove("/no/such"))
	require.Error(t, h.WriteFile("relative", strings.NewReader(""), own(0o600)))
	require.NoError(t, h.WriteFile("/file", strings.NewReader(""), own(0o600)))
	require.ErrorIs(t, h.WriteFile("/file/below", strings.NewReader(""), own(0o600)), syscall.ENOTDIR)
}

func second[T any](_ T, err error) error { return err }

func TestLocal_LinksOfRootAreFollowedUnderTheRoot(t *testing.T) {
	h := machost.Local{Root: t.TempDir()}
	require.NoError(t, h.MakeDir("/private/etc", own(0o755)))
	require.NoError(t, h.Symlink("private/etc", "/etc"))
	require.NoError(t, h.Symlink("/private/etc", "/absolute"))
	require.NoError(t, h.WriteFile("/etc/file", strings.NewReader("x"), own(0o600)))
	for _, path := range []string{"/private/etc/file", "/absolute/file"} {
		content, err := h.ReadFile(path)
		require.NoError(t, err, path)
		require.Equal(t, "x", string(content))
	}
	info, err := h.Stat("/etc")
	require.NoError(t, err)
	require.Equal(t, "private/etc", info.Target)
	require.NoError(t, h.Symlink("elsewhere", "/etc"), "replaced in one rename")
	require.NoError(t, h.Symlink("loop", "/loop"))
	require.ErrorIs(t, second(h.ReadFile("/loop/x")), syscall.ELOOP)
	require.NoError(t, h.Symlink("../../../../../../etc/passwd", "/out"))
	require.ErrorIs(t, second(h.ReadFile("/out")), fs.ErrNotExist, "no link leads out of the root")
}

// A user who can write to a directory must not redirect root's writes by a link in it.
func TestLocal_LinksThatAUserHasPlantedAreNotFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a directory of another user's")
	}
	h := machost.Local{Root: t.TempDir()}
	ci := machost.Attributes{Mode: 0o755, UID: 501, GID: 20}
	require.NoError(t, h.WriteFile("/etc/sudoers", strings.NewReader("root"), own(0o440)))
	require.NoError(t, h.MakeDir("/Users/ci", ci))
	plant := func(target, path string) {
		require.NoError(t, os.Symlink(target, filepath.Join(h.Root, path)))
		require.NoError(t, os.Lchown(filepath.Join(h.Root, path), 501, 20))
	}
	plant("../../etc", "/Users/ci/state")
	plant("/etc/sudoers", "/Users/ci/log")
	plant("../Users/ci", "/etc/theirs") // a link of theirs in a directory of root's
	require.NoError(t, os.Symlink("../../etc", filepath.Join(h.Root, "/Users/ci/roots")))

	var link *machost.LinkError
	for name, err := range map[string]error{
		"write through":     h.WriteFile("/Users/ci/state/sudoers", strings.NewReader("ci ALL"), own(0o440)),
		"read":              second(h.ReadFile("/Users/ci/log")),
		"list":              second(h.ReadDir("/Users/ci/state")),
		"remove through":    h.Remove("/Users/ci/state/sudoers"),
		"make through":      h.MakeDir("/Users/ci/state/new", own(0o755)),
		"link through":      h.Symlink("x", "/Users/ci/state/new"),
		"their link":        second(h.ReadDir("/etc/theirs")),
		"moved into theirs": second(h.ReadFile("/Users/ci/roots/sudoers")),
	} {
		require.ErrorAs(t, err, &link, name)
	}
	require.NoError(t, h.WriteFile("/Users/ci/log", strings.NewReader("x"), ci), "the link itself is replaced")
	require.NoError(t, h.Remove("/Users/ci/state"), "the link itself is removed")
	content, err := h.ReadFile("/etc/sudoers")
	require.NoError(t, err)
	require.Equal(t, "root", string(content))
	require.Equal(t, []string{"sudoers", "theirs"}, names(t, h, "/etc"))
}

func TestLocal_RenamesAndRemoves(t *testing.T) {
	h := machost.Local{Root: t.TempDir()}
	require.NoError(t, h.WriteFile("/a/new/x", strings.NewReader(""), own(0o600)))
	require.NoError(t, h.Rename("/a/new", "/a/done"))
	require.Equal(t, []string{"x"}, names(t, h, "/a/done"))
	require.Error(t, h.Rename("/a/done", "/b/done"), "one directory is one rename")
	require.NoError(t, h.Remove("/a"))
	require.ErrorIs(t, second(h.Stat("/a")), fs.ErrNotExist)
}

// program puts a script under the root.
func program(t *testing.T, h machost.Local, path, script string) {
	t.Helper()
	require.NoError(t, h.WriteFile(path, strings.NewReader("#!/bin/sh\n"+script), own(0o755)))
}

func TestLocal_RunsWithAFixedEnvironmentAndBoundedOutput(t *testing.T) {
	t.Setenv("BULLPEN_SECRET", "s3cr3t")
	t.Setenv("DEVMAC_USER", "root")
	h := machost.Local{Root: t.TempDir()}
	program(t, h, "/bin/tell", `env; cat; echo told >&2; exit 7`)
	result, err := h.Run(t.Context(), machost.Command{Path: "/bin/tell", Args: []string{"a b"}, Env: []string{"X=1"}, Stdin: []byte("in")})
	require.NoError(t, err, "a program that ran and failed is no error")
	require.Equal(t, 7, result.ExitCode)
	require.Equal(t, "told\n", string(result.Stderr))
	require.Contains(t, string(result.Stdout), "PATH=/usr/bin:/bin:/usr/sbin:/sbin\n")
	require.Contains(t, string(result.Stdout), "DEVMAC_USER=root\n")
	require.Contains(t, string(result.Stdout), "X=1\n")
	require.NotContains(t, string(result.Stdout), "s3cr3t")
	require.True(t, bytes.HasSuffix(result.Stdout, []byte("in")))

	program(t, h, "/bin/much", `dd if=/dev/zero bs=1024 count=200 2>/dev/null; echo done >&2`)
	result, err = h.Run(t.Context(), machost.Command{Path: "/bin/much"})
	require.NoError(t, err)
	require.Len(t, result.Stdout, 64<<10)
	require.True(t, result.Cut)
	require.Equal(t, "done\n", string(result.Stderr), "it was not held up")
	for limit, cut := range map[int]bool{200<<10 - 1: true, 200 << 10: false} {
		result, err = h.Run(t.Context(), machost.Command{Path: "/bin/much", Limit: limit})
		require.NoError(t, err)
		require.Len(t, result.Stdout, limit)
		require.Equal(t, cut, result.Cut)
	}

	_, err = h.Run(t.Context(), machost.Command{Path: "/bin/missing"})
	var missing *machost.ProgramError
	require.ErrorAs(t, err, &missing)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), h.Root)
}

// Processes that a program has started must not continue after the apply has given it up.
func TestLocal_EndsTheWholeProcessGroup(t *testing.T) {
	h := machost.Local{Root: t.TempDir()}
	program(t, h, "/bin/hang", `(trap '' TERM; echo $$ > started; while :; do sleep 60; done) & wait`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := h.Run(ctx, machost.Command{Path: "/bin/hang"})
		done <- err
	}()
	var group string
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(filepath.Join(h.Root, "started"))
		group = strings.TrimSpace(string(content))
		return err == nil && group != ""
	}, 20*time.Second, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, await.Receive(t, done, "the command that was cancelled returns"), context.Canceled)
	require.Eventually(t, func() bool { return !groupAlive(t, group) }, 20*time.Second, 5*time.Millisecond)
}

func groupAlive(t *testing.T, group string) bool {
	t.Helper()
	pid := 0
	for _, digit := range group {
		pid = pid*10 + int(digit-'0')
	}
	require.Greater(t, pid, 1)
	return !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH)
}

func TestLocal_OneApplyAtATime(t *testing.T) {
	h := machost.Local{Root: t.TempDir()}
	unlock, err := h.Locker(time.Second)(t.Context(), func(string) { t.Error("no holder to wait for") })
	require.NoError(t, err)

	said := make(chan string, 1)
	got := make(chan error, 1)
	go func() {
		unlock, err := h.Locker(time.Minute)(t.Context(), func(message string) { said <- message })
		if err == nil {
			defer unlock()
		}
		got <- err
	}()
	require.Contains(t, await.Receive(t, said, "the locker says that it waits"), "waiting for another apply (PID")

	_, err = h.Locker(50*time.Millisecond)(t.Context(), func(string) {})
	var locked *machost.LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID)
	require.ErrorContains(t, err, machost.StateDir+"/lock")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = h.Locker(time.Minute)(cancelled, func(string) {})
	require.ErrorIs(t, err, context.Canceled)
	unlock()
	require.NoError(t, await.Receive(t, got, "the lock is taken"))
}
