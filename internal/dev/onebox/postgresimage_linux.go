package onebox

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
)

// postgresUser runs the database in its container. PostgreSQL refuses to run as root.
const postgresUser = 999

// startPostgres is what the image runs. Its variables are the usual ones of Docker Hub's image.
const startPostgres = `#!/bin/sh
set -eu
data=/var/lib/postgresql/data
user="${POSTGRES_USER:-postgres}"
if [ ! -s "$data/PG_VERSION" ]; then
  method="${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}"
  if [ -z "${POSTGRES_PASSWORD:-}" ] && [ "$method" != trust ]; then
    echo "POSTGRES_PASSWORD is not set. Set it in the service's env, or set POSTGRES_HOST_AUTH_METHOD to trust." >&2
    exit 1
  fi
  umask 077
  printf '%s\n' "${POSTGRES_PASSWORD:-unused}" > /tmp/password
  "PROGRAMS/initdb" --pgdata="$data" --username="$user" --pwfile=/tmp/password --encoding=UTF8 --locale=C --auth-local=trust --auth-host="$method" --no-sync
  rm /tmp/password
  printf 'host all all all %s\n' "$method" >> "$data/pg_hba.conf"
  database="${POSTGRES_DB:-$user}"
  if [ "$database" != postgres ]; then
    printf 'CREATE DATABASE "%s"\n' "$database" | "PROGRAMS/postgres" --single -D "$data" postgres
  fi
fi
exec "PROGRAMS/postgres" -D "$data" -c listen_addresses='*' -c fsync=off "$@"
`

// postgresTools are found in the image by their names.
var postgresTools = []string{"psql", "pg_isready", "pg_dump"}

// postgresImage is a database for jobs, made of this machine's PostgreSQL, whose programs are in a directory.
func postgresImage(ctx context.Context, programs string) (realnode.Image, error) {
	failed := func(err error) (realnode.Image, error) {
		return realnode.Image{}, fmt.Errorf("packing PostgreSQL into an image: %w", err)
	}
	shell, err := realnode.HostPrograms("sh", "rm")
	if err != nil {
		return failed(err)
	}
	var files fileSet
	files.add(shell...)
	for _, tool := range append([]string{"postgres", "initdb"}, postgresTools...) {
		program, err := realnode.HostProgram(filepath.Join(programs, tool), filepath.Join(programs, tool))
		if err != nil {
			return failed(err)
		}
		files.add(program...)
	}
	for _, tool := range postgresTools {
		files.add(realnode.File{Path: "/usr/bin/" + tool, Link: filepath.Join(programs, tool)})
	}
	share, err := postgresDirectory(ctx, programs, "--sharedir")
	if err != nil {
		return failed(err)
	}
	library, err := postgresDirectory(ctx, programs, "--pkglibdir")
	if err != nil {
		return failed(err)
	}
	data, err := tree(share)
	if err != nil {
		return failed(err)
	}
	modules, err := modulesOf(library)
	if err != nil {
		return failed(err)
	}
	files.add(data...)
	if zones, err := tree("/usr/share/zoneinfo"); err == nil { // PostgreSQL has its own elsewhere
		files.add(zones...)
	}
	files.add(modules...)
	start := strings.ReplaceAll(startPostgres, "PROGRAMS", programs)
	files.add(
		realnode.File{Path: "/usr/local/bin/start-postgres", Content: []byte(start)},
		realnode.File{Path: "/etc/passwd", Content: fmt.Appendf(nil, "root:x:0:0:root:/root:/bin/sh\npostgres:x:%[1]d:%[1]d:postgres:/var/lib/postgresql:/bin/sh\n", postgresUser), Mode: 0o644},
		realnode.File{Path: "/etc/group", Content: fmt.Appendf(nil, "root:x:0:\npostgres:x:%d:\n", postgresUser), Mode: 0o644},
		realnode.File{Path: "/tmp", Mode: 0o777 | fs.ModeSticky},
		realnode.File{Path: "/var/lib/postgresql", Mode: 0o755, Owner: postgresUser},
		realnode.File{Path: "/var/run/postgresql", Mode: 0o755, Owner: postgresUser},
	)
	return realnode.Image{
		Ref: PostgresImage, Files: files.all, Entrypoint: []string{"/usr/local/bin/start-postgres"}, User: fmt.Sprintf("%[1]d:%[1]d", postgresUser),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}, nil
}

// postgresDirectory asks PostgreSQL where its files are.
func postgresDirectory(ctx context.Context, programs, which string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(programs, "pg_config"), which).Output()
	if err != nil {
		return "", fmt.Errorf("pg_config %s: %w", which, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// modulesOf are the server's loadable modules with the libraries that they need: those that every database has. Others, such as its compiler, need
// libraries that are larger than the rest of the image.
func modulesOf(dir string) ([]realnode.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []realnode.File
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || filepath.Ext(name) != ".so" || strings.HasPrefix(name, "llvmjit") {
			continue
		}
		module, err := realnode.HostProgram(filepath.Join(dir, name), filepath.Join(dir, name))
		if err != nil {
			continue // an extension whose library is not installed
		}
		files = append(files, module...)
	}
	return files, nil
}

// tree are the regular files and links below a directory, at the same paths.
func tree(root string) ([]realnode.File, error) {
	var files []realnode.File
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(at)
			files = append(files, realnode.File{Path: at, Link: target})
			return err
		}
		if entry.Type().IsRegular() {
			files = append(files, realnode.File{Path: at, From: at})
		}
		return nil
	})
	return files, err
}
