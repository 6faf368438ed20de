package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// userName and databaseName are the superuser and the database that a new directory gets.
const (
	userName     = "bullpen"
	databaseName = "bullpen"
)

// fastShutdown asks the server to end at once, and in order: open transactions are rolled back.
const fastShutdown = syscall.SIGINT

// Options of Start.
type Options struct {
	// Dir is a directory for this server alone; it is created. As root we give it to the server's user, who must be able to pass through
	// every directory above it.
	Dir string
	// MaxConnections the server accepts; 200 when zero.
	MaxConnections int
	// FastUnsafe gives up durability for speed: for tests, whose data is thrown away.
	FastUnsafe bool
	// Settings are given to the server after its own, as NAME=VALUE: of two of one name the later counts. For tests.
	Settings []string
	// StartTimeout bounds creating the database and waiting until it answers; a minute when zero.
	StartTimeout time.Duration
	// Log gets starts, stops and unexpected exits; discarded when nil.
	Log *slog.Logger

	search *search // tests only
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("starting PostgreSQL: no directory was given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("starting PostgreSQL in %s: %w", o.Dir, err)
	}
	o.Dir = dir
	if o.MaxConnections == 0 {
		o.MaxConnections = 200
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.search == nil {
		where := systemSearch()
		o.search = &where
	}
	return o, nil
}

// Server is a running private PostgreSQL. Its methods are safe for concurrent use.
type Server struct {
	options  Options
	who      account
	with     installation
	socket   string
	password string
	lock     *os.File

	process *childproc.Child
	once    sync.Once
	stopped error
}

// Start brings the server up and returns when it accepts connections. A directory of an earlier run is reused, also
// when its owner was killed. The server ends with Stop, or with this process.
//
// Errors to distinguish: ErrNotInstalled, *VersionMismatchError, ErrInUse.
func Start(ctx context.Context, options Options) (*Server, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, options.StartTimeout)
	defer cancel()
	all, err := installations(ctx, *options.search)
	if err != nil {
		return nil, err
	}
	if err := who.own(options.Dir); err != nil {
		return nil, err
	}
	if err := who.canEnter(options.Dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(options.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{options: options, who: who, socket: socketDir(options.Dir), lock: lock}
	if err := s.bringUp(ctx, all); err != nil {
		_ = lock.Close()
		return nil, err
	}
	options.Log.Info("PostgreSQL is up", "version", s.with.major, "directory", options.Dir, "pid", s.process.PID())
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.options.Dir, "data") }

// LogFile is where the server's own messages go.
func (s *Server) LogFile() string { return filepath.Join(s.options.Dir, "postgres.log") }

// URL connects to the database "bullpen". It contains the password.
func (s *Server) URL() string { return s.DatabaseURL(databaseName) }

// DatabaseURL connects to another database of the server. It contains the password.
func (s *Server) DatabaseURL(database string) string {
	query := url.Values{"host": {s.socket}, "sslmode": {"disable"}}
	target := url.URL{
		Scheme: "postgres", User: url.UserPassword(userName, s.password), Path: "/" + database,
		RawQuery: query.Encode(),
	}
	return target.String()
}

// PID of the postmaster.
func (s *Server) PID() int { return s.process.PID() }

// Done is closed when the server has exited, for any reason.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

func (s *Server) bringUp(ctx context.Context, all []installation) error {
	major, err := dataMajor(s.data())
	if err != nil {
		return err
	}
	if s.with, err = choose(all, major, s.options.Dir); err != nil {
		return err
	}
	if s.password, err = s.loadPassword(major == 0); err != nil {
		return err
	}
	if major == 0 {
		if err := s.create(ctx); err != nil {
			return err
		}
	}
	stale, err := stopLeftover(ctx, s.data())
	if err != nil {
		return err
	}
	if err := prepareSocketDir(s.socket, s.who); err != nil {
		return err
	}
	return s.launch(ctx, stale)
}

// dataMajor is the version that wrote the data; zero when there is none yet.
func dataMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of the database in %s: %w", data, err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the database in %s has an unreadable version %q: remove that directory to start afresh",
			data, strings.TrimSpace(string(text)))
	}
	return major, nil
}

func (s *Server) passwordFile() string { return filepath.Join(s.options.Dir, "password") }

func (s *Server) loadPassword(fresh bool) (string, error) {
	if !fresh {
		text, err := os.ReadFile(s.passwordFile())
		if err != nil {
			return "", fmt.Errorf("reading the database's password: %w; remove %s to begin with an empty database",
				err, s.options.Dir)
		}
		return strings.TrimSpace(string(text)), nil
	}
	password := rand.Text()
	if err := os.WriteFile(s.passwordFile(), []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keeping the database's password: %w", err)
	}
	if s.who.foreign {
		if err := os.Chown(s.passwordFile(), s.who.uid, s.who.gid); err != nil {
			return "", fmt.Errorf("keeping the database's password: %w", err)
		}
	}
	return password, nil
}

// create makes a database cluster beside its final place and renames it when it is complete, so that a kill in between leaves nothing that
// could be mistaken for data.
func (s *Server) create(ctx context.Context) error {
	fresh := s.data() + ".new"
	for _, half := range []string{fresh, s.data()} { // without PG_VERSION the latter is no data either
		if err := os.RemoveAll(half); err != nil {
			return fmt.Errorf("removing a half-made database: %w", err)
		}
	}
	if err := s.who.own(fresh); err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + fresh, "--username=" + userName, "--encoding=UTF8", "--locale=C",
		"--auth=scram-sha-256", "--pwfile=" + s.passwordFile(),
	}
	if s.options.FastUnsafe {
		args = append(args, "--no-sync")
	}
	if err := s.run(ctx, "", s.with.initdb, args...); err != nil {
		return fmt.Errorf("creating a database in %s: %w", s.options.Dir, err)
	}
	single := []string{"--single", "-D", fresh, "-c", "exit_on_error=on"}
	if s.options.FastUnsafe {
		single = append(single, "-c", "fsync=off")
	}
	sql := "CREATE DATABASE " + databaseName + "\n"
	if err := s.run(ctx, sql, s.with.postgres, append(single, "template1")...); err != nil {
		return fmt.Errorf("creating a database in %s: %w", s.options.Dir, err)
	}
	if err := os.Rename(fresh, s.data()); err != nil {
		return fmt.Errorf("putting the new database in place: %w", err)
	}
	return nil
}

// run executes one of PostgreSQL's programs to its end.
func (s *Server) run(ctx context.Context, input, program string, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = s.environment(), s.options.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.who.credential()}
	child, err := childproc.Start(cmd, fastShutdown)
	if err != nil {
		return err
	}
	if err := child.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, lastLines(output.String(), 5))
	}
	return nil
}

// environment is small on purpose: the user's PGDATA, PGPORT and similar variables must not reach a private server.
func (s *Server) environment() []string {
	return []string{"PATH=" + filepath.Dir(s.with.postgres) + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

func (s *Server) arguments() []string {
	args := []string{"-D", s.data(), "-k", s.socket, "-p", "5432", "-N", strconv.Itoa(s.options.MaxConnections)}
	settings := []string{
		"listen_addresses=", "unix_socket_permissions=0700", "logging_collector=off", "log_timezone=UTC",
		"timezone=UTC", "log_line_prefix=%m [%p] ",
	}
	if s.options.FastUnsafe {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")
	}
	for _, setting := range append(settings, s.options.Settings...) {
		args = append(args, "-c", setting)
	}
	return args
}

// launch starts the server and waits until it accepts connections. After an earlier server was killed, its last
// children may hold the shared memory for another moment; then the start is repeated a few times.
func (s *Server) launch(ctx context.Context, afterKill bool) error {
	const pause = 300 * time.Millisecond
	attempts := 1
	if afterKill {
		attempts = 10
	}
	for {
		err := s.launchOnce(ctx)
		attempts--
		if err == nil || attempts == 0 {
			return err
		}
		if _, waitErr := await(ctx, pause, func() bool { return false }); waitErr != nil {
			return err
		}
	}
}

func (s *Server) launchOnce(ctx context.Context) error {
	_ = os.Rename(s.LogFile(), s.LogFile()+".1") // one earlier log is kept; there may be none
	// It outlives the start: Stop ends it, or our death.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.with.postgres, s.arguments()...)
	cmd.Env, cmd.Dir = s.environment(), s.options.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.who.credential()}
	child, err := childproc.StartLogged(cmd, s.LogFile(), fastShutdown)
	if err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	ready, err := await(ctx, s.options.StartTimeout, func() bool {
		pid, state, err := postmasterPID(s.data())
		return child.Exited() || err == nil && pid == child.PID() && state == "ready"
	})
	if err == nil && ready && !child.Exited() {
		s.process = child
		return nil
	}
	_ = end(context.Background(), child, fastShutdown)
	return fmt.Errorf("starting PostgreSQL: it did not come up; the end of %s says: %s",
		s.LogFile(), tail(s.LogFile(), 3))
}

// Stop ends the server (open transactions are rolled back) and frees the directory. When ctx ends first, the server is
// cut off, recovers at its next start, and Stop says so. Stopping twice is fine.
func (s *Server) Stop(ctx context.Context) error {
	s.once.Do(func() {
		s.stopped = end(ctx, s.process, fastShutdown)
		if filepath.Dir(s.socket) != s.options.Dir {
			_ = os.RemoveAll(s.socket) // under /tmp, ours alone
		}
		_ = s.lock.Close()
		s.options.Log.Info("PostgreSQL has stopped", "directory", s.options.Dir)
	})
	return s.stopped
}
