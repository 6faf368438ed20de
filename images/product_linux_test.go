package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	imageUser  = 65532
	runnerUser = 1001 // runner pods run as this user (runnerpod.DefaultRunAsUser)
)

// The image as a runtime would start it: its own root, mounted read-only, as its own user, with nothing beside it.
func TestProduct_RunsFromAReadOnlyRootAsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount, and change the root of a process")
	}
	built, image := productImage(t)
	all, err := product()
	require.NoError(t, err)
	checkTree(t, image.Image, built, all.Mac, testRelease().Created)
	root := container(t, image)

	started := func(user uint32, command ...string) (string, error) {
		child := exec.CommandContext(limited(t), command[0], command[1:]...)
		child.Dir, child.Env = "/", []string{"PATH=/usr/local/bin"}
		child.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
		output, err := child.CombinedOutput()
		return string(output), err
	}
	config, err := image.Image.ConfigFile()
	require.NoError(t, err)
	entrypoint := config.Config.Entrypoint[0]
	output, err := started(imageUser, entrypoint, "--version")
	require.NoError(t, err, output)
	require.Contains(t, output, "v1.2.3")
	for _, part := range []string{"server", "controller", "node", "agent", "accounts", "audit"} {
		output, err = started(imageUser, entrypoint, part, "--help")
		require.NoError(t, err, output)
		require.Contains(t, output, "bullpen "+part)
	}
	output, err = started(imageUser, entrypoint, "controller", "--help")
	require.NoError(t, err)
	const agent = "/" + agentPath
	require.Contains(t, output, "(default "+agent+")", "runner pods start the agent from where the image has it")

	// As the pods of runners do: the init container copies the agent into a volume, the others start it from there.
	const installed = "/bullpen/shared/bullpen-agent"
	output, err = started(runnerUser, agent, "install", "--to", installed)
	require.NoError(t, err, output)
	output, err = started(runnerUser, installed, "--version")
	require.NoError(t, err, output)
	copied, err := os.ReadFile(filepath.Join(root, installed))
	require.NoError(t, err)
	require.True(t, bytes.Equal(built.Agent.Content, copied))

	output, err = started(0, agent, "install", "--to", "/usr/local/bin/other")
	require.Error(t, err, "not even root writes here")
	require.Contains(t, output, "read-only")
	for _, part := range []string{"up", "demo", "dev"} {
		output, err = started(imageUser, entrypoint, part)
		require.Error(t, err)
		require.Contains(t, output, "unknown command")
	}
	_, err = started(imageUser, "/bin/sh")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// container unpacks an image and mounts it read-only, with a world-writable volume where pods have theirs.
func container(t *testing.T, m member) string {
	t.Helper()
	root := t.TempDir()
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // another user passes through
	}
	headers, contents := entries(t, m.Image)
	for i, header := range headers {
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			require.NoError(t, os.Mkdir(path, 0o700))
		} else {
			require.NoError(t, os.WriteFile(path, contents[i], 0o600))
		}
		require.NoError(t, os.Chown(path, header.Uid, header.Gid))
		require.NoError(t, os.Chmod(path, header.FileInfo().Mode().Perm()))
	}
	volume := filepath.Join(root, "bullpen", "shared")
	require.NoError(t, os.MkdirAll(volume, 0o755), "a runtime makes it too, and cannot where a file is in the way") //nolint:gosec // as a runtime does
	proc := filepath.Join(root, "proc")
	require.NoError(t, os.Mkdir(proc, 0o555)) //nolint:gosec // as a runtime does
	mount(t, root, root, "", syscall.MS_BIND)
	mount(t, "proc", proc, "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC)
	mount(t, "tmpfs", volume, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV)
	require.NoError(t, syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	return root
}

func mount(t *testing.T, what, where, kind string, flags uintptr) {
	t.Helper()
	data := ""
	if kind == "tmpfs" {
		data = "mode=0777"
	}
	require.NoError(t, syscall.Mount(what, where, kind, flags, data), "mounting %s takes leave to mount", where)
	t.Cleanup(func() {
		err := syscall.Unmount(where, syscall.MNT_DETACH)
		require.True(t, err == nil || errors.Is(err, syscall.EINVAL), "%v", err)
	})
}
