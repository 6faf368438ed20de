package poolertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// EnvProgram names the PgBouncer to run, in place of the one that is installed.
const EnvProgram = "BULLPEN_PGBOUNCER"

// Pooling modes.
const (
	Transaction = "transaction"
	Session     = "session"
)

// Options of Start.
type Options struct {
	Mode string // Transaction by default
	// Statements is PgBouncer's max_prepared_statements: it keeps track of as many prepared statements and prepares them on the server connection
	// at hand. 0: clients must not prepare any. Only for a version that TracksStatements.
	Statements int
	Servers    int // server connections for each database; 3 by default
}

// Kinds are the ways in which a transaction pooler handles prepared statements. Those that the installed version does not have are left
// out.
func Kinds(t testing.TB) map[string]Options {
	t.Helper()
	kinds := map[string]Options{"prepares nothing": {}}
	if TracksStatements(t) {
		kinds["prepares statements"] = Options{Statements: 50} // fewer than the ledger has
	}
	return kinds
}

// Pooler is a running PgBouncer, before all databases of one server.
type Pooler struct {
	dir string
}

// Start runs a PgBouncer in front of the database at target until the test ends. It uses its server connections in turn, so that successive
// statements of one client run on different ones.
func Start(t testing.TB, target string, o Options) *Pooler {
	t.Helper()
	server, err := url.Parse(target)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/tmp", "bullpen-pooler-") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	host, port := cmp.Or(server.Query().Get("host"), server.Hostname()), cmp.Or(server.Query().Get("port"), server.Port(), "5432")
	who := account(t, host)
	password, _ := server.User.Password()
	p := &Pooler{dir: dir}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		if who != nil {
			require.NoError(t, os.Chown(path, int(who.Uid), int(who.Gid)))
		}
		return path
	}
	if who != nil {
		require.NoError(t, os.Chown(dir, int(who.Uid), int(who.Gid)))
	}
	users := write("users", fmt.Sprintf("%q %q\n", server.User.Username(), password))
	config := write("pgbouncer.ini", o.config(t, host, port, dir, users))
	p.run(t, config, who)
	return p
}

func (p *Pooler) run(t testing.TB, config string, who *syscall.Credential) {
	t.Helper()
	var output bytes.Buffer
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program(t), config) //nolint:gosec // of the system
	command.Stdout, command.Stderr = &output, &output
	command.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	child, err := childproc.Start(command, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		child.Stop(context.Background(), syscall.SIGKILL, 0) // what it does in order waits for its clients
		if t.Failed() {
			t.Log("PgBouncer:\n" + output.String())
		}
	})
	var dialer net.Dialer
	require.Eventually(t, func() bool {
		conn, err := dialer.DialContext(t.Context(), "unix", filepath.Join(p.dir, ".s.PGSQL.6432"))
		return err == nil && conn.Close() == nil
	}, 20*time.Second, 5*time.Millisecond, "PgBouncer does not listen")
}

func (o Options) config(t testing.TB, host, port, dir, users string) string {
	servers := cmp.Or(o.Servers, 3)
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_port = 6432
unix_socket_dir = %s
auth_type = trust
auth_file = %s
pool_mode = %s
default_pool_size = %d
min_pool_size = %d
max_client_conn = 500
server_round_robin = 1
server_fast_close = 1
server_login_retry = 1
`, host, port, dir, users, cmp.Or(o.Mode, Transaction), servers, servers)
	if o.Statements > 0 || TracksStatements(t) {
		text += fmt.Sprintf("max_prepared_statements = %d\n", o.Statements)
	}
	return text
}

// URL leads to the database at target, through the pooler.
func (p *Pooler) URL(t testing.TB, target string) string {
	t.Helper()
	through, err := url.Parse(target)
	require.NoError(t, err)
	through.Host = ""
	through.RawQuery = url.Values{"host": {p.dir}, "port": {"6432"}, "sslmode": {"disable"}}.Encode()
	return through.String()
}

// Settle returns when all server connections to the database exist: from then on they are used in turn.
func (p *Pooler) Settle(t testing.TB, target string, servers int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	config, err := pgx.ParseConfig(p.URL(t, target))
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	for range servers { // each holds one until all are there
		conn, err := pgx.ConnectConfig(ctx, config)
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		tx, err := conn.Begin(ctx)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	}
}

// account is who PgBouncer runs as: it does not run as root, and it has to pass to the server's socket.
func account(t testing.TB, host string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	const nobody = 65534
	who := &syscall.Credential{Uid: nobody, Gid: nobody}
	if strings.HasPrefix(host, "/") {
		info, err := os.Stat(host)
		require.NoError(t, err)
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
			who.Uid, who.Gid = stat.Uid, stat.Gid
		}
	}
	return who
}

func program(t testing.TB) string {
	t.Helper()
	name := cmp.Or(os.Getenv(EnvProgram), "pgbouncer")
	path, err := exec.LookPath(name)
	if err != nil && name == "pgbouncer" {
		path, err = exec.LookPath("/usr/sbin/pgbouncer") // Debian's, where only root's PATH leads
	}
	require.NoError(t, err, "run scripts/prerequisites.sh pgbouncer")
	return path
}

var versionLine = regexp.MustCompile(`(?m)^PgBouncer (\d+)\.(\d+)`)

// TracksStatements reports whether the installed version has max_prepared_statements: 1.21 and newer have.
func TracksStatements(t testing.TB) bool {
	t.Helper()
	out, err := exec.CommandContext(await.Context(t), program(t), "--version").Output() //nolint:gosec // of the system
	require.NoError(t, err)
	found := versionLine.FindStringSubmatch(string(out))
	require.NotNil(t, found, "%s", out)
	major, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	minor, err := strconv.Atoi(found[2])
	require.NoError(t, err)
	return major > 1 || minor >= 21
}
