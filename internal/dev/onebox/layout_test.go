package onebox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
)

func testLayout(t *testing.T) Layout {
	t.Helper()
	layout, err := NewLayout(t.TempDir())
	require.NoError(t, err)
	return layout
}

func TestDefaultStateDir(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		root bool
		want string
	}{
		"an ordinary user":     {map[string]string{"HOME": "/home/ada"}, false, "/home/ada/.local/state/bullpen/onebox"},
		"with XDG_STATE_HOME":  {map[string]string{"HOME": "/home/ada", "XDG_STATE_HOME": "/state"}, false, "/state/bullpen/onebox"},
		"root":                 {map[string]string{"HOME": "/root"}, true, "/var/lib/bullpen/onebox"},
		"root with a choice":   {map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/state"}, true, "/state/bullpen/onebox"},
		"nobody's environment": {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := DefaultStateDir(func(key string) string { return test.env[key] }, test.root)
			if test.want == "" {
				require.ErrorContains(t, err, "--state-dir")
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, dir)
		})
	}
}

func TestLayoutCheck(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		found bool
		says  string
	}{
		"an empty folder":                   {},
		"a folder that was locked only":     {files: map[string]string{"lock": ""}},
		"ours":                              {files: map[string]string{"bullpen-onebox.json": `{"format":1}`, "logs": ""}, found: true},
		"somebody's documents":              {files: map[string]string{"thesis.txt": "…"}, says: "Choose an empty directory with --state-dir"},
		"ours, of another version":          {files: map[string]string{"bullpen-onebox.json": `{"format":7}`}, found: true, says: "bullpen down --delete"},
		"ours, but the marker is damaged":   {files: map[string]string{"bullpen-onebox.json": `{"for`}, found: true, says: "bullpen down --delete"},
		"ours, but the marker is of no use": {files: map[string]string{"bullpen-onebox.json": `{}`}, found: true, says: "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			layout := testLayout(t)
			for file, content := range test.files {
				require.NoError(t, os.WriteFile(layout.path(file), []byte(content), 0o600))
			}
			found, err := layout.check()
			require.Equal(t, test.found, found)
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			stale := &StaleFolderError{}
			require.True(t, errors.As(err, &stale))
			require.ErrorContains(t, err, test.says)
		})
	}
	layout, err := NewLayout(filepath.Join(t.TempDir(), "not", "there"))
	require.NoError(t, err)
	_, err = layout.check()
	require.NoError(t, err, "a folder that does not exist is made")
}

func TestPrepareKeepsTheFolderPrivate(t *testing.T) {
	for root, want := range map[bool]os.FileMode{false: 0o700, true: 0o711} {
		layout := testLayout(t)
		require.NoError(t, os.Chmod(layout.Dir, 0o777))
		require.NoError(t, layout.prepare(root, false))
		info, err := os.Stat(layout.Dir)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm())
		for _, dir := range []string{"logs", "secrets", "identities", "github", "node"} {
			info, err := os.Stat(layout.path(dir))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), dir)
		}
		require.NoDirExists(t, layout.MacNode(), "there is no macOS node without --macos")
		found, err := layout.check()
		require.True(t, found)
		require.NoError(t, err)
	}
}

func TestSecretsAreMadeOnceAndPrivate(t *testing.T) {
	layout := testLayout(t)
	require.NoError(t, layout.prepare(false, false))
	require.NoError(t, makeSecrets(layout))
	before := map[string]string{}
	for _, name := range []string{"app.pem", "webhook-secret", "admin-token"} {
		info, err := os.Stat(layout.secret(name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
		data, err := os.ReadFile(layout.secret(name))
		require.NoError(t, err)
		before[name] = string(data)
	}
	require.NotEqual(t, before["webhook-secret"], before["admin-token"])
	require.NoError(t, makeSecrets(layout))
	for name, content := range before {
		data, err := os.ReadFile(layout.secret(name))
		require.NoError(t, err)
		require.Equal(t, content, string(data), "%s stays the same for the life of the folder", name)
	}
}

func TestDeleteAlsoRemovesReadOnlyFolders(t *testing.T) {
	layout := testLayout(t)
	deep := layout.path("node", "work", "cache")
	require.NoError(t, os.MkdirAll(deep, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(deep, "file"), nil, 0o400))
	require.NoError(t, os.Chmod(deep, 0o500))
	require.NoError(t, layout.delete())
	_, err := os.Stat(layout.Dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Of root's first start: PostgreSQL runs as another user, who has to reach its directory.
func TestLockMakesFoldersThatCanBePassedThrough(t *testing.T) {
	above := filepath.Join(t.TempDir(), "bullpen")
	lock, err := Layout{Dir: filepath.Join(above, "onebox")}.lock()
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	info, err := os.Stat(above)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o711), info.Mode().Perm())
}

// A state directory that PostgreSQL's user cannot reach is refused before anything is created. Users other than root run PostgreSQL themselves.
func TestOpen_RefusesADirectoryThatPostgreSQLCannotReach(t *testing.T) {
	private := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.Mkdir(private, 0o700))
	state := filepath.Join(private, "a", "b")
	if os.Geteuid() != 0 {
		require.NoError(t, postgres.CheckDir(state))
		return
	}
	_, err := open(t.Context(), Options{StateDir: state})
	require.ErrorContains(t, err, "cannot access "+private+": choose a state directory elsewhere")
	left, err := os.ReadDir(private)
	require.NoError(t, err)
	require.Empty(t, left)
	for _, dir := range []string{private, filepath.Dir(private), filepath.Dir(filepath.Dir(private))} {
		require.NoError(t, os.Chmod(dir, 0o711)) //nolint:gosec // that is the point
	}
	require.NoError(t, postgres.CheckDir(state), "directories that do not exist yet are created for others to enter")
}

func TestLockIsRefusedWithTheOwnersNumber(t *testing.T) {
	layout := testLayout(t)
	lock, err := layout.lock()
	require.NoError(t, err)
	_, err = layout.lock()
	var used *InUseError
	require.True(t, errors.As(err, &used))
	require.Equal(t, os.Getpid(), used.PID)
	require.ErrorContains(t, err, "bullpen down --state-dir "+layout.Dir)
	require.NoError(t, lock.Close())
	again, err := layout.lock()
	require.NoError(t, err, "the lock goes with its owner")
	require.NoError(t, again.Close())
}

func TestDownLeavesForeignFoldersAlone(t *testing.T) {
	layout := testLayout(t)
	file := layout.path("thesis.txt")
	require.NoError(t, os.WriteFile(file, []byte("…"), 0o600))
	err := Down(t.Context(), DownOptions{StateDir: layout.Dir, Delete: true})
	require.ErrorContains(t, err, "is not a state directory")
	require.FileExists(t, file)
}

func TestDownIsIdempotent(t *testing.T) {
	var last Event
	options := DownOptions{StateDir: filepath.Join(t.TempDir(), "never"), Report: func(e Event) { last = e }}
	require.NoError(t, Down(t.Context(), options))
	require.Contains(t, last.Message, "Nothing is running")
	require.NoDirExists(t, options.StateDir, "looking makes no folder")

	layout := testLayout(t)
	require.NoError(t, layout.prepare(false, false))
	options.StateDir = layout.Dir
	for range 2 {
		require.NoError(t, Down(t.Context(), options))
		require.Equal(t, EventStopped, last.Kind)
	}
	options.Delete = true
	for range 2 {
		require.NoError(t, Down(t.Context(), options))
		require.NoDirExists(t, layout.Dir)
	}
}

func TestDownDeletesADamagedFolder(t *testing.T) {
	layout := testLayout(t)
	require.NoError(t, os.WriteFile(layout.marker(), []byte("{"), 0o600))
	require.NoError(t, Down(t.Context(), DownOptions{StateDir: layout.Dir, Delete: true}), "the error of `up` recommends exactly this")
	require.NoDirExists(t, layout.Dir)
}
