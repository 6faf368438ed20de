package assets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// BuildOptions say what to build, and where to tell about it.
type BuildOptions struct {
	Options
	// Log is told when a build begins, every half minute while it runs, and when it ends. Nil: nobody is told.
	Log io.Writer
	// Tick is the pause between two signs of life. Zero: 30 seconds.
	Tick time.Duration
	// Command prepares the compiler's call in the source folder. Nil: `go build`. Tests put their own here.
	Command func(ctx context.Context, sourceDir, output string) *exec.Cmd
}

// Build returns a complete folder of executables, and compiles it when neither the environment nor the cache has one
// (minutes, once per version of the sources). Builds of one cache wait for each other.
func Build(ctx context.Context, o BuildOptions) (string, error) {
	o.Options = o.withDefaults()
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Log = &lockedWriter{to: o.Log} // the compiler's output and the signs of life come from two goroutines
	if o.Tick == 0 {
		o.Tick = 30 * time.Second
	}
	if o.Command == nil {
		o.Command = goBuild
	}
	dir, err := Find(o.Options)
	if err == nil {
		return dir, nil
	}
	if o.Dir != "" || o.Getenv(EnvAssets) != "" {
		return "", err // the user named a folder: building another one behind it would hide the mistake
	}
	source, err := resolveSource(o.SourceDir)
	if err != nil {
		return "", fmt.Errorf("building the development cluster: %w", err)
	}
	key, err := Key(source)
	if err != nil {
		return "", err
	}
	if dir, err = cacheDir(o.Getenv, key); err != nil {
		return "", err
	}
	return dir, buildInto(ctx, o, source, dir)
}

// lockedWriter lets several goroutines write, a message at a time.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

func buildInto(ctx context.Context, o BuildOptions, source, dir string) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("creating the cache folder: %w", err)
	}
	unlock, err := lock(filepath.Join(parent, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if Complete(dir) { // another build finished while we waited for the lock
		return nil
	}
	work, err := os.MkdirTemp(parent, ".building-")
	if err != nil {
		return fmt.Errorf("creating the build folder: %w", err)
	}
	defer os.RemoveAll(work)
	if err := compile(ctx, o, source, filepath.Join(work, "devcluster")); err != nil {
		return err
	}
	for _, name := range Names() {
		if err := os.Symlink("devcluster", filepath.Join(work, name)); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	if err := os.Chmod(work, 0o755); err != nil { // MkdirTemp makes it private; another user may run the tests
		return fmt.Errorf("opening the build folder: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil { // an incomplete folder, say one that a cleaner went through
		return fmt.Errorf("removing the incomplete %s: %w", dir, err)
	}
	if err := os.Rename(work, dir); err != nil {
		return fmt.Errorf("publishing the build: %w", err)
	}
	return nil
}

func compile(ctx context.Context, o BuildOptions, source, output string) error {
	began := time.Now()
	fmt.Fprintf(o.Log, "devcluster: compiling etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.\n"+
		"devcluster: this happens once; about five minutes on two cores.\n")
	command := o.Command(ctx, source, output)
	command.Stdout, command.Stderr = o.Log, o.Log
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the compiler: %w", err)
	}
	finished := make(chan error, 1)
	go func() { finished <- command.Wait() }()
	ticker := time.NewTicker(o.Tick)
	defer ticker.Stop()
	for {
		select {
		case err := <-finished:
			if err != nil {
				return fmt.Errorf("compiling the development cluster: %w", err)
			}
			fmt.Fprintf(o.Log, "devcluster: done after %s.\n", time.Since(began).Round(time.Second))
			return nil
		case <-ticker.C:
			fmt.Fprintf(o.Log, "devcluster: still compiling, %s so far.\n", time.Since(began).Round(time.Second))
		}
	}
}

// goBuild compiles without cgo, so that the result runs on any machine of the same kind, and stamps the version that
// the API server reports (clients such as kubectl and Helm read it).
func goBuild(ctx context.Context, source, output string) *exec.Cmd {
	flags := "-s -w"
	version := kubernetesVersion(source)
	if parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3); len(parts) == 3 {
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, version, parts[0], parts[1])
		}
	}
	// grpcnotrace leaves out a tracing page whose templates keep the linker from dropping unused methods.
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", flags, "-o", output, ".")
	command.Dir = source
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "PWD="+source)
	return command
}

var requireKubernetes = regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes (v[0-9][^\s]*)`)

func kubernetesVersion(source string) string {
	data, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return ""
	}
	found := requireKubernetes.FindSubmatch(data)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// buildRecipe is part of the key: raise it when goBuild changes what it makes.
const buildRecipe = "1"

// Key names what a build of the devcluster sources would be: it changes with every non-test source file, the
// dependency versions, the platform and the way of building.
func Key(sourceDir string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %s\n", buildRecipe, runtime.GOOS, runtime.GOARCH)
	files := 0
	err := filepath.WalkDir(sourceDir, func(path string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil || !isSource(entry) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(sourceDir, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(name), len(data))
		sum.Write(data)
		files++
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("reading the devcluster sources: %w", err)
	}
	if files == 0 {
		return "", fmt.Errorf("%s holds no devcluster sources", sourceDir)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func isSource(entry fs.DirEntry) bool {
	if !entry.Type().IsRegular() {
		return false
	}
	name := entry.Name()
	return name == "go.mod" || name == "go.sum" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

// lock waits for the one lock of a cache folder. The kernel gives it back when its holder dies.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("taking the build lock: %w", err)
	}
	return func() { file.Close() }, nil
}
