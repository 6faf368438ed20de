package postgrestest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
)

// EnvDatabaseURL names a running server to use instead of a private one. Its user must be allowed to create
// databases; only databases whose name begins with "bullpentest_" are touched.
const EnvDatabaseURL = "BULLPEN_DATABASE_URL"

// EnvShared names the server that all packages of one run share: see Serve. Unlike EnvDatabaseURL, programs of the product that a test
// starts do not read it.
const EnvShared = "BULLPEN_TEST_DATABASE_URL"

// Migrate brings an empty database to the schema under test. It must close its connections before it returns.
type Migrate func(ctx context.Context, url string) error

// shared is the one server of the test process. Tests of one package share nothing else.
var shared = &host{templates: map[uintptr]*template{}}

// host is the server, started by the first caller.
type host struct {
	mu      sync.Mutex
	managed bool // Main runs, and will stop what is started
	alone   bool // EnvShared does not count
	server  *postgres.Server
	dir     string
	url     string
	err     error

	templates map[uintptr]*template

	admin administration
}

// template is one migrated database that tests copy.
type template struct {
	once sync.Once
	name string
	err  error
}

// Main runs the tests and stops the server afterwards:
//
//	func TestMain(m *testing.M) { postgrestest.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Run is Main for a package whose tests need another thing from their TestMain, too: it runs tests, stops the server and
// returns the exit code.
//
//	os.Exit(postgrestest.Run(func() int { return kit.Main(m) }))
func Run(tests func() int) int {
	shared.mu.Lock()
	shared.managed = true
	shared.mu.Unlock()
	code := tests()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the tests' PostgreSQL:", err)
		code = max(code, 1)
	}
	return code
}

// Alone is Run for a package that counts what statements read. While a transaction runs in any database of a server, dead
// rows of all its databases stay in their indexes, and are read again.
func Alone(tests func() int) int {
	shared.mu.Lock()
	shared.alone = true
	shared.mu.Unlock()
	return Run(tests)
}

// NewDatabase returns the URL of a database that is this test's alone and is dropped at its end. With migrate it is a
// copy of a template that is migrated once per process: pass a package-level function, which identifies the template.
// A nil migrate gives an empty database. The test fails at once when there is no PostgreSQL.
func NewDatabase(t testing.TB, migrate Migrate) string {
	t.Helper()
	ctx := context.Background() // also used after the test's own context has ended
	base, err := shared.start(ctx)
	if err != nil {
		t.Fatalf("a PostgreSQL server for the tests: %v", err)
	}
	source := "template0"
	if migrate != nil {
		if source, err = shared.template(ctx, base, migrate); err != nil {
			t.Fatalf("a migrated database for the tests: %v", err)
		}
	}
	name := newName()
	if err := shared.admin.copy(ctx, base, source, name); err != nil {
		t.Fatalf("creating a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := shared.admin.execute(ctx, base, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	target, err := withDatabase(base, name)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// newName is safe to use unquoted.
func newName() string { return "bullpentest_" + strings.ToLower(rand.Text()[:16]) }

// start returns the URL of the server's administrative database.
func (h *host) start(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.managed {
		return "", errors.New("TestMain of this package has to call postgrestest.Main, which stops the server")
	}
	if h.url != "" || h.err != nil {
		return h.url, h.err
	}
	given := os.Getenv(EnvDatabaseURL)
	if given == "" && !h.alone {
		given = os.Getenv(EnvShared)
	}
	if given != "" {
		if _, err := withDatabase(given, "x"); err != nil {
			h.err = err
		} else {
			h.url = given
		}
		return h.url, h.err
	}
	h.url, h.err = h.startPrivate(ctx)
	return h.url, h.err
}

// Serve starts a server for all packages of a run, runs what is given its URL, and ends the server.
func Serve(ctx context.Context, run func(url string) error) (err error) {
	h := &host{}
	defer func() { err = errors.Join(err, h.stop()) }()
	at, err := h.startPrivate(ctx)
	if err != nil {
		return err
	}
	return run(at)
}

func (h *host) startPrivate(ctx context.Context) (string, error) {
	sweep()
	dir, err := os.MkdirTemp(parent(), "bullpen-pgtest-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the tests' PostgreSQL: %w", err)
	}
	h.dir = dir
	h.server, err = postgres.Start(ctx, postgres.Options{Dir: dir, FastUnsafe: true, MaxConnections: 500})
	if err != nil {
		return "", err
	}
	return h.server.URL(), nil
}

// memory is a file system in memory, as Linux has one. Each test's database is hundreds of files that are created and removed, which is
// most of the duration of a short test on a disk.
const memory = "/dev/shm"

// parent is the directory of the server's directory. It is not the test's own: the server may run as another user, who may not enter that
// one.
func parent() string {
	const enough = 4 << 30 // for many packages at once; a container's usual 64 MiB are not
	var s unix.Statfs_t
	if err := unix.Statfs(memory, &s); err == nil && int64(s.Bavail)*int64(s.Bsize) >= enough && unix.Access(memory, unix.W_OK) == nil { //nolint:gosec,unconvert // types differ by system
		return memory
	}
	return "/tmp"
}

// sweep removes directories of test processes that were killed before they could. Their servers died with them.
func sweep() {
	const settled = time.Minute // a process that starts right now has made its directory, and takes it in a moment
	dirs, _ := filepath.Glob("/tmp/bullpen-pgtest-*")
	inMemory, _ := filepath.Glob(memory + "/bullpen-pgtest-*")
	for _, dir := range append(dirs, inMemory...) {
		info, err := os.Stat(dir)
		if err == nil && time.Since(info.ModTime()) > settled && postgres.Abandoned(dir) {
			_ = os.RemoveAll(dir) // another user's stays; it does no harm
		}
	}
}

// template migrates a template once. No client may connect to it afterwards, or copies of it would fail.
func (h *host) template(ctx context.Context, base string, migrate Migrate) (string, error) {
	key := reflect.ValueOf(migrate).Pointer()
	h.mu.Lock()
	entry := h.templates[key]
	if entry == nil {
		entry = &template{name: newName()}
		h.templates[key] = entry
	}
	h.mu.Unlock()
	entry.once.Do(func() { entry.err = h.build(ctx, base, entry.name, migrate) })
	return entry.name, entry.err
}

func (h *host) build(ctx context.Context, base, name string, migrate Migrate) error {
	if err := h.admin.copy(ctx, base, "template0", name); err != nil {
		return err
	}
	target, err := withDatabase(base, name)
	if err != nil {
		return err
	}
	if err := migrate(ctx, target); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	return h.admin.execute(ctx, base, "ALTER DATABASE "+name+" WITH ALLOW_CONNECTIONS false")
}

// stop drops the templates of a server that is not ours, or ends the one that is.
func (h *host) stop() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs []error
	defer h.admin.close()
	if h.server != nil {
		h.admin.close()
		errs = append(errs, h.server.Stop(ctx))
	} else if h.url != "" {
		for _, entry := range h.templates {
			errs = append(errs, h.admin.execute(ctx, h.url, "DROP DATABASE IF EXISTS "+entry.name+" WITH (FORCE)"))
		}
	}
	if h.dir != "" {
		errs = append(errs, os.RemoveAll(h.dir))
	}
	return errors.Join(errs...)
}

func execute(ctx context.Context, target, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, target)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func withDatabase(base, name string) (string, error) {
	parsed, err := url.Parse(base)
	if err != nil || parsed.Scheme != "postgres" && parsed.Scheme != "postgresql" {
		// The text may hold a password, so it is not repeated.
		return "", fmt.Errorf("%s is not of the form postgres://user:password@host:port/database", EnvDatabaseURL)
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}
