package postgres

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	bounded "github.com/bullpen-ci/bullpen/test/kit/await"
)

const ownerDirEnv = "PGSERVER_TEST_OWNER_DIR"

// TestMain doubles as the owner that a test kills: it runs a server, says so, and waits for its death.
func TestMain(m *testing.M) {
	dir := os.Getenv(ownerDirEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	server, err := Start(context.Background(), Options{Dir: dir, FastUnsafe: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(server.PID())
	select {} // bounded: the test kills this process
}

// stateDir is a directory that an unprivileged server may reach, unlike t.TempDir when root runs the tests.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bullpen-pgserver-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "postgres")
}

func start(t *testing.T, dir string) *Server {
	t.Helper()
	server, err := Start(t.Context(), Options{Dir: dir, FastUnsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

func exec1(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	var answer string
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&answer))
	return answer
}

func run1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestStart_KeepsDataOverRestarts(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	server := start(t, dir)
	require.Equal(t, "UTF8", exec1(t, server.URL(), "SHOW server_encoding"))
	require.Equal(t, "C", exec1(t, server.URL(), "SELECT datcollate FROM pg_database WHERE datname = current_database()"))
	run1(t, server.URL(), "CREATE TABLE kept AS SELECT 'here'::text AS what")
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Stop(t.Context()), "stopping twice is fine")
	require.False(t, alive(server.PID()))

	again := start(t, dir)
	require.Equal(t, "here", exec1(t, again.URL(), "SELECT what FROM kept"))
}

func TestStart_IsPrivate(t *testing.T) {
	t.Parallel()
	server := start(t, stateDir(t))
	require.Empty(t, exec1(t, server.URL(), "SHOW listen_addresses"))
	info, err := os.Stat(server.socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	without := strings.Replace(server.URL(), server.password, "wrong", 1)
	_, err = pgx.Connect(t.Context(), without)
	require.Error(t, err, "a connection without the password")
	if os.Geteuid() == 0 {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.PID()))
		if err == nil {
			require.NotContains(t, string(status), "\nUid:\t0\t")
		}
	}
}

func TestStart_LongPathUsesAShortSocketDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(filepath.Dir(stateDir(t)), strings.Repeat("long,", 25))
	server := start(t, dir)
	require.Equal(t, "1", exec1(t, server.URL(), "SELECT '1'"))
	require.True(t, strings.HasPrefix(server.socket, "/tmp/bullpen-pg-"), server.socket)
	require.NoError(t, server.Stop(t.Context()))
	require.NoDirExists(t, server.socket)
}

func TestStart_OneOwnerPerDirectory(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	server := start(t, dir)
	require.False(t, Abandoned(dir))
	_, err := Start(t.Context(), Options{Dir: dir, FastUnsafe: true})
	require.ErrorIs(t, err, ErrInUse)
	require.Contains(t, err.Error(), dir)
	require.Equal(t, "1", exec1(t, server.URL(), "SELECT '1'"), "the refused start disturbed the running server")
	require.NoError(t, server.Stop(t.Context()))
	require.True(t, Abandoned(dir))
	require.False(t, Abandoned(t.TempDir()), "not one of ours")
}

// ownerProcess starts a process that owns a server, and returns it with the server's process id.
func ownerProcess(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerDirEnv+"="+dir)
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	return owner, pid
}

func TestStart_EndsWithAKilledOwner(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	owner, pid := ownerProcess(t, dir)
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	require.True(t, Abandoned(dir))
	if runtime.GOOS == "linux" { // the kernel ends it with its owner
		require.Eventually(t, func() bool { return !alive(pid) }, 20*time.Second, 10*time.Millisecond,
			"the server outlived its killed owner")
	}
	require.Equal(t, "1", exec1(t, start(t, dir).URL(), "SELECT '1'"))
}

func TestStart_StopsALeftoverServer(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	server := start(t, dir)
	// What a killed owner leaves where no death signal exists: the lock is free, the server runs.
	require.NoError(t, server.lock.Close())

	again := start(t, dir)
	require.NotEqual(t, server.PID(), again.PID())
	require.Equal(t, "1", exec1(t, again.URL(), "SELECT '1'"))
	bounded.Receive(t, server.Done(), "the server that was killed ends")
}

func TestStart_AfterTheServerItselfWasKilled(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	server := start(t, dir)
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGKILL))
	bounded.Receive(t, server.Done(), "the server that was killed ends")
	require.NoError(t, server.Stop(t.Context()))
	require.FileExists(t, filepath.Join(server.data(), "postmaster.pid"))
	require.Equal(t, "1", exec1(t, start(t, dir).URL(), "SELECT '1'"))
}

func TestStart_StalePIDFileNamesAStranger(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	server := start(t, dir)
	require.NoError(t, server.Stop(t.Context()))
	// The number was given to another process since: this very test.
	text := fmt.Sprintf("%d\n%s\n0\n5432\n%s\n\n0 0\nready\n", os.Getpid(), server.data(), server.socket)
	require.NoError(t, os.WriteFile(filepath.Join(server.data(), "postmaster.pid"), []byte(text), 0o600))
	require.Equal(t, "1", exec1(t, start(t, dir).URL(), "SELECT '1'"))
}

func TestStart_HalfMadeDatabaseIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data", "base"), 0o700))
	require.Equal(t, "1", exec1(t, start(t, dir).URL(), "SELECT '1'"))
}

func TestStart_OtherVersionsDataIsRefused(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("11\n"), 0o600))
	_, err := Start(t.Context(), Options{Dir: dir})
	var mismatch *VersionMismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, 11, mismatch.Data)
	require.Contains(t, err.Error(), "install PostgreSQL 11")
	require.DirExists(t, filepath.Join(dir, "data"), "no data is removed")
}

func TestStart_NotInstalledSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Dir: stateDir(t), search: &search{path: t.TempDir()}})
	require.ErrorIs(t, err, ErrNotInstalled)
	require.Contains(t, err.Error(), "apt-get install postgresql")
	require.Contains(t, err.Error(), "BULLPEN_DATABASE_URL")
}

func TestStart_DirectoryBehindAPrivateOneIsExplained(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		// Other users run the server as themselves, so no directory of theirs is closed to it.
		who := account{name: "postgres", uid: 12345, gid: 12345, foreign: true}
		require.ErrorContains(t, who.canEnter(filepath.Join(t.TempDir(), "x")), "cannot access")
		return
	}
	parent := filepath.Dir(stateDir(t))
	require.NoError(t, os.Chmod(parent, 0o700))
	_, err := Start(t.Context(), Options{Dir: filepath.Join(parent, "postgres")})
	require.ErrorContains(t, err, "cannot access "+parent)
}

// fakeInstallation writes programs that only know their version.
func fakeInstallation(t *testing.T, dir, version string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
}

func TestInstallations_PathFirstThenNewest(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	fakeInstallation(t, filepath.Join(root, "13", "bin"), "13.9")
	fakeInstallation(t, filepath.Join(root, "9.6", "bin"), "9.6.24")
	fakeInstallation(t, filepath.Join(root, "15", "bin"), "15.2 (Debian 15.2-1)")
	fakeInstallation(t, filepath.Join(root, "18", "bin"), "18beta1")
	fakeInstallation(t, filepath.Join(root, "path"), "14.1")
	linked := filepath.Join(root, "links")
	require.NoError(t, os.MkdirAll(linked, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(root, "15", "bin", "postgres"), filepath.Join(linked, "postgres")))

	where := search{path: filepath.Join(root, "path"), globs: []string{filepath.Join(root, "*", "bin")}}
	all, err := installations(t.Context(), where)
	require.NoError(t, err)
	require.Equal(t, []int{14, 18, 15}, majors(all))

	all, err = installations(t.Context(), search{path: linked})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "15", "bin", "initdb"), all[0].initdb, "companions are beside the real program")

	_, err = installations(t.Context(), search{globs: []string{filepath.Join(root, "13", "bin")}})
	require.ErrorIs(t, err, ErrNotInstalled)
	require.Contains(t, err.Error(), "version 13")
}

func majors(all []installation) []int {
	var list []int
	for _, one := range all {
		list = append(list, one.major)
	}
	return list
}

func TestChoose_SameMajorAsTheData(t *testing.T) {
	all := []installation{{major: 17}, {major: 15}}
	one, err := choose(all, 15, "/data")
	require.NoError(t, err)
	require.Equal(t, 15, one.major)
	_, err = choose(all, 16, "/data")
	require.EqualError(t, err, "the database in /data was written by PostgreSQL 16, and only version 17, 15 is "+
		"installed: install PostgreSQL 16, or remove that directory to begin with an empty database")
}
