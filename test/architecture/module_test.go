package architecture

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const module = "github.com/bullpen-ci/bullpen"

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath   string
	Name         string
	Dir          string
	Standard     bool
	GoFiles      []string
	Imports      []string // of its own files
	TestImports  []string
	XTestImports []string
	Deps         []string // of its own files, through others
}

// short is the path inside the module: "internal/fleet".
func (p goPackage) short() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// listed is every package of the module and all they depend on, by import path.
var listed = sync.OnceValues(func() (map[string]goPackage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Name,Dir,Standard,GoFiles,Imports,TestImports,XTestImports,Deps", module+"/...")
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, errors.New(string(exit.Stderr))
		}
		return nil, err
	}
	all := map[string]goPackage{}
	decoder := json.NewDecoder(strings.NewReader(string(output)))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
})

// modulePackages are the packages of this module, by their path inside it, and everything they depend on.
func modulePackages(t *testing.T) (own, all map[string]goPackage) {
	t.Helper()
	all, err := listed()
	require.NoError(t, err)
	own = map[string]goPackage{}
	for path, p := range all {
		if strings.HasPrefix(path, module+"/") {
			own[p.short()] = p
		}
	}
	require.NotEmpty(t, own)
	noticeChanges(t)
	return own, all
}

// noticeChanges reads every directory of the module's packages. `go test` replays a pass until a directory or file
// changes that the test itself read; it does not know what `go list` read.
func noticeChanges(t *testing.T) {
	t.Helper()
	for _, top := range []string{"api", "cmd", "internal", "scripts", "test"} {
		root := filepath.Join("..", "..", top)
		require.NoError(t, filepath.WalkDir(root, func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
}

// within reports whether path is prefix or lies below it.
func within(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

func withinAny(path string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if within(path, prefix) {
			return true
		}
	}
	return false
}
