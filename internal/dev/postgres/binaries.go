package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OldestMajor is the oldest major version of PostgreSQL that Bullpen's schema is tested with.
const OldestMajor = 14

// ErrNotInstalled: no usable PostgreSQL was found. The error that wraps it says what to install.
var ErrNotInstalled = errors.New("PostgreSQL is not installed")

// NotInstalledError says what was found instead, and what to do. errors.Is(err, ErrNotInstalled) holds.
type NotInstalledError struct {
	// TooOld lists installations that were found and are older than OldestMajor.
	TooOld []string
}

// Error is one sentence that names the package to install.
func (e *NotInstalledError) Error() string {
	found := "no PostgreSQL server was found on PATH, under /usr/lib/postgresql or in Homebrew's directories"
	if len(e.TooOld) > 0 {
		found = "only an old PostgreSQL was found (" + strings.Join(e.TooOld, ", ") + ")"
	}
	return fmt.Sprintf("%s: install version %d or newer (Debian, Ubuntu: `apt-get install postgresql`; "+
		"macOS: `brew install postgresql@17`), or set BULLPEN_DATABASE_URL to a database that runs already",
		found, OldestMajor)
}

// Is makes it an ErrNotInstalled.
func (e *NotInstalledError) Is(target error) bool { return target == ErrNotInstalled }

// VersionMismatchError: the data directory was written by a major version that is not installed.
type VersionMismatchError struct {
	Dir       string
	Data      int
	Installed []int
}

// Error is one sentence that names both versions and the two ways out.
func (e *VersionMismatchError) Error() string {
	installed := make([]string, len(e.Installed))
	for i, major := range e.Installed {
		installed[i] = strconv.Itoa(major)
	}
	return fmt.Sprintf("the database in %s was written by PostgreSQL %d, and only version %s is installed: "+
		"install PostgreSQL %d, or remove that directory to begin with an empty database",
		e.Dir, e.Data, strings.Join(installed, ", "), e.Data)
}

// installation is one set of server programs.
type installation struct {
	initdb   string
	postgres string
	major    int
}

// search says where to search; tests give their own.
type search struct {
	path  string   // a PATH list
	globs []string // directories that hold the programs
}

func systemSearch() search {
	return search{path: os.Getenv("PATH"), globs: []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // the PGDG packages of Red Hat's family
		"/opt/homebrew/opt/postgresql@*/bin", // Homebrew, Apple silicon
		"/usr/local/opt/postgresql@*/bin",    // Homebrew, Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/usr/local/pgsql/bin", // built from source
	}}
}

// installations lists what is installed and new enough, PATH's first, then the newest first.
func installations(ctx context.Context, where search) ([]installation, error) {
	var onPath, known []installation
	var tooOld []string
	seen := map[string]bool{}
	look := func(dir string, into *[]installation) {
		found, ok := inspect(ctx, dir)
		if !ok || seen[found.postgres] {
			return
		}
		seen[found.postgres] = true
		if found.major < OldestMajor {
			tooOld = append(tooOld, fmt.Sprintf("%s, version %d", found.postgres, found.major))
			return
		}
		*into = append(*into, found)
	}
	for _, dir := range filepath.SplitList(where.path) {
		look(dir, &onPath)
	}
	for _, pattern := range where.globs {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("looking for PostgreSQL in %s: %w", pattern, err)
		}
		for _, dir := range dirs {
			look(dir, &known)
		}
	}
	slices.SortStableFunc(known, func(a, b installation) int { return b.major - a.major })
	all := append(onPath, known...)
	if len(all) == 0 {
		return nil, &NotInstalledError{TooOld: tooOld}
	}
	return all, nil
}

// inspect asks the programs in one directory for their version. Links are resolved, because PATH often holds links to a
// few programs only, and because initdb looks for its companions beside itself.
func inspect(ctx context.Context, dir string) (installation, bool) {
	if dir == "" {
		return installation{}, false
	}
	postgres, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return installation{}, false
	}
	initdb := filepath.Join(filepath.Dir(postgres), "initdb")
	if info, err := os.Stat(initdb); err != nil || info.IsDir() {
		return installation{}, false
	}
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	if err != nil {
		return installation{}, false
	}
	major, ok := majorVersion(string(out))
	return installation{initdb: initdb, postgres: postgres, major: major}, ok
}

// versionLine matches "postgres (PostgreSQL) 15.20 (Debian …)", "17.2", "18beta1" and "9.6.24".
var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func majorVersion(line string) (int, bool) {
	match := versionLine.FindStringSubmatch(line)
	if match == nil {
		return 0, false
	}
	major, err := strconv.Atoi(match[1])
	return major, err == nil
}

// choose picks the installation for a data directory: any for a new one (dataMajor 0), the same major version for one
// that exists.
func choose(all []installation, dataMajor int, dir string) (installation, error) {
	if dataMajor == 0 {
		return all[0], nil
	}
	var majors []int
	for _, one := range all {
		if one.major == dataMajor {
			return one, nil
		}
		majors = append(majors, one.major)
	}
	return installation{}, &VersionMismatchError{Dir: dir, Data: dataMajor, Installed: majors}
}

// Programs is the directory of the server's programs, of the installation that Start uses for a new database.
func Programs(ctx context.Context) (string, error) {
	all, err := installations(ctx, systemSearch())
	if err != nil {
		return "", err
	}
	return filepath.Dir(all[0].postgres), nil
}
