package guestshare

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadReport(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, FileExit)
	_, found, err := ReadReport(dir, FileExit)
	require.NoError(t, err)
	require.False(t, found)

	want := Report{Code: 143, Signal: 15, StartedAt: time.Unix(1, 0).UTC(), FinishedAt: time.Unix(2, 0).UTC()}
	require.NoError(t, WriteJSON(file, want))
	got, found, err := ReadReport(dir, FileExit)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, want, got)

	for name, content := range map[string]string{
		"no JSON": "{", "code too large": `{"code":256}`, "code below zero": `{"code":-1}`, "code of another kind": `{"code":"0"}`,
		"signal": `{"code":1,"signal":99}`, "too large": `{"message":"` + strings.Repeat("x", MaxRecord) + `"}`,
	} {
		require.NoError(t, Write(file, []byte(content)))
		_, found, err := ReadReport(dir, FileExit)
		require.Error(t, err, name)
		require.False(t, found, name)
	}
	require.NoError(t, WriteJSON(file, Report{Message: strings.Repeat("x", 5000)}))
	got, _, err = ReadReport(dir, FileExit)
	require.NoError(t, err)
	require.Len(t, got.Message, 1024)
}

// NET-3: a customer's job writes into the directory; it must neither lead the host out of it nor block it.
func TestOpen_NET3_FollowsNoLinkOutOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("token"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for _, name := range []string{"link", "folder", "pipe", "../" + filepath.Base(dir) + "/x"} {
		_, err := Read(dir, name)
		require.Error(t, err, name)
	}
	_, err := Read(dir, "nothing")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestHeartbeat_IsNeverInTheFuture(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	_, seen := Heartbeat(dir, now)
	require.False(t, seen)
	file := filepath.Join(dir, FileHeartbeat)
	require.NoError(t, Write(file, nil))
	for offset, want := range map[time.Duration]time.Time{time.Hour: now, -time.Minute: now.Add(-time.Minute)} {
		require.NoError(t, os.Chtimes(file, now.Add(offset), now.Add(offset)))
		at, seen := Heartbeat(dir, now)
		require.True(t, seen)
		require.True(t, at.Equal(want))
	}
}
