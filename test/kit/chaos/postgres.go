package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// End is a way to end Postgres.
type End syscall.Signal

// The ways to end Postgres: fast rolls back what is under way and writes everything; immediate writes nothing, and the next
// start recovers; killed is the postmaster's SIGKILL, after which its processes exit.
const (
	Fast      = End(syscall.SIGINT)
	Immediate = End(syscall.SIGQUIT)
	Killed    = End(syscall.SIGKILL)
)

// Postgres breaks a server that runs on this machine.
type Postgres struct {
	// DataDir is its data directory: "data" in the directory of a pgserver.
	DataDir string
	// URL of the database that Dump and Restore are about, of a user who owns its schema public.
	URL string
}

// End ends the server and returns when the postmaster is gone. Its owner restarts it.
func (p Postgres) End(ctx context.Context, how End) error {
	pid, err := p.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.Signal(how)); err != nil {
		return fmt.Errorf("ending Postgres: %w", err)
	}
	if err := until(ctx, func() bool { return syscall.Kill(pid, 0) != nil }); err != nil {
		return fmt.Errorf("waiting for the end of Postgres: %w", err)
	}
	return nil
}

// pid is the postmaster's.
func (p Postgres) pid() (int, error) {
	data, err := os.ReadFile(filepath.Join(p.DataDir, "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("finding Postgres (does it run?): %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("finding Postgres: %s does not name a process", filepath.Join(p.DataDir, "postmaster.pid"))
	}
	return pid, nil
}

// Dump writes the database into a file, as of one moment, while others use it.
func (p Postgres) Dump(ctx context.Context, file string) error {
	_, err := p.run(ctx, "pg_dump", "--no-owner", "--file="+file)
	return err
}

// Restore puts the database back to a dump, in one transaction that waits for all others: clients stay connected, and from
// one statement to the next see the past. Tables that the dump does not have are gone.
func (p Postgres) Restore(ctx context.Context, file string) error {
	_, err := p.run(ctx, "psql", "--no-psqlrc", "--quiet", "--single-transaction", "--output="+os.DevNull, "--set=ON_ERROR_STOP=1",
		"--command=DROP SCHEMA public CASCADE", "--command=CREATE SCHEMA public", "--file="+file)
	return err
}

// run runs one of the server's own programs on the database, and returns what it said. The password is in the environment, not among the arguments.
func (p Postgres) run(ctx context.Context, program string, args ...string) (string, error) {
	opts, err := os.ReadFile(filepath.Join(p.DataDir, "postmaster.opts"))
	if err != nil {
		return "", fmt.Errorf("finding %s beside Postgres: %w", program, err)
	}
	server, _, _ := strings.Cut(string(opts), " ")
	environment, err := p.environment()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, filepath.Join(filepath.Dir(server), program), args...)
	command.Env = append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	text := strings.TrimSpace(string(output))
	if err != nil {
		return "", fmt.Errorf("running %s: %w: %s", program, err, text)
	}
	return text, nil
}

func (p Postgres) environment() ([]string, error) {
	at, err := url.Parse(p.URL)
	if err != nil || at.Path == "" {
		return nil, errors.New("the URL of the database cannot be read") // it may hold a password: not repeated
	}
	host, port := at.Hostname(), at.Port()
	if given := at.Query().Get("host"); given != "" {
		host = given
	}
	if port == "" {
		port = at.Query().Get("port")
	}
	out := []string{"PGHOST=" + host, "PGUSER=" + at.User.Username(), "PGDATABASE=" + strings.TrimPrefix(at.Path, "/")}
	if password, ok := at.User.Password(); ok {
		out = append(out, "PGPASSWORD="+password)
	}
	if port != "" {
		out = append(out, "PGPORT="+port)
	}
	return out, nil
}
