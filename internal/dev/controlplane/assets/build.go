package assets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// BuildOptions say what to make, and where to report it.
type BuildOptions struct {
	Options
	// Log gets the progress of downloads and of the compilation. Nil: nothing is reported.
	Log io.Writer
	// Terminal indicates that Log is one, on which a progress bar can be drawn.
	Terminal bool
	// Tick is the pause between two signs of life of the compilation. Zero: 30 seconds.
	Tick time.Duration
	// Transport makes the requests of downloads. Nil: one that uses the environment's proxies.
	Transport http.RoundTripper
	// Command prepares the compiler's call in the source directory. Nil: `go build`. Tests put their own here.
	Command func(ctx context.Context, sourceDir, output string) *exec.Cmd

	part                     func(ctx context.Context, source string, p part, output string) *exec.Cmd // buildPart
	versions, connect, stall time.Duration                                                             // versionPatience, connectPatience and stallPatience
	goos                     string
}

func (o BuildOptions) withDefaults() BuildOptions {
	o.Options = o.Options.withDefaults()
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
	if o.part == nil {
		o.part = buildPart
	}
	if o.versions == 0 {
		o.versions = versionPatience
	}
	if o.connect == 0 {
		o.connect = connectPatience
	}
	if o.stall == 0 {
		o.stall = stallPatience
	}
	if o.goos == "" {
		o.goos = runtime.GOOS
	}
	return o
}

// Build returns a complete directory of executables. When neither the environment nor the cache has one, it makes one of
// published programs, from PATH or downloaded. When that fails, or $BULLPEN_ASSETS is "off", it compiles them (minutes,
// once per version of the sources). Builds of one cache wait for each other.
func Build(ctx context.Context, o BuildOptions) (string, error) {
	o = o.withDefaults()
	set, err := parseSetting(o.Getenv(EnvAssets))
	if err != nil {
		return "", err
	}
	if o.Dir != "" || set.dir != "" {
		return Find(o.Options) // the user named a directory: building another one behind it would hide the mistake
	}
	if dir := o.Getenv(EnvKubebuilder); dir != "" && Complete(dir) {
		return Find(o.Options)
	}
	source, err := resolveSource(o.SourceDir)
	if err != nil {
		return "", fmt.Errorf("building the development cluster: %w", err)
	}
	key, err := Key(source)
	if err != nil {
		return "", err
	}
	dir, err := cacheDir(o.Getenv, key)
	if err != nil {
		return "", err
	}
	r, err := readRelease(source, o.goos, runtime.GOARCH)
	return o.obtain(ctx, target{source: source, compiled: dir, release: r, unreleased: err, setting: set})
}

// target is what Build makes: the compiled directory, or beside it that of a release.
type target struct {
	source, compiled string
	release          release
	unreleased       error // why there is no release
	setting          setting
}

func (t target) ready() string { return filepath.Join(filepath.Dir(t.compiled), t.release.key()) }

// cached is the complete directory that the cache has, or empty.
func (o BuildOptions) cached(ctx context.Context, t target) string {
	if Complete(t.compiled) {
		return t.compiled
	}
	if !t.setting.off && t.unreleased == nil && Complete(t.ready()) && t.release.current(ctx, o.versions, t.ready()) {
		return t.ready()
	}
	return ""
}

func (o BuildOptions) obtain(ctx context.Context, t target) (string, error) {
	if dir := o.cached(ctx, t); dir != "" {
		return dir, nil
	}
	parent := filepath.Dir(t.compiled)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache directory: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(parent, ".lock"), func() {
		fmt.Fprintln(o.Log, "devcluster: waiting for another process that downloads or compiles the control plane.")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if dir := o.cached(ctx, t); dir != "" { // another process finished while this one waited
		return dir, nil
	}
	if !t.setting.off {
		err := o.getReady(ctx, t)
		if err == nil {
			return t.ready(), nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("downloading the development cluster: %w", context.Cause(ctx))
		}
		what := "use ready-made programs:"
		if errors.As(err, new(*fetchError)) {
			what = "download"
		}
		fmt.Fprintf(o.Log, "devcluster: cannot %s %v; compiling instead (about five minutes).\n", what, err)
	}
	return t.compiled, o.buildInto(ctx, t.source, t.compiled)
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

// buildInto compiles into dir. The caller holds the lock.
func (o BuildOptions) buildInto(ctx context.Context, source, dir string) error {
	parent := filepath.Dir(dir)
	work, err := os.MkdirTemp(parent, ".building-")
	if err != nil {
		return fmt.Errorf("creating the build directory: %w", err)
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
		return fmt.Errorf("opening the build directory: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil { // an incomplete directory, say one that a cleaner went through
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
	if err := o.watch(o.Command(ctx, source, output), "devcluster", began); err != nil {
		return fmt.Errorf("compiling the development cluster: %w", err)
	}
	fmt.Fprintf(o.Log, "devcluster: done after %s.\n", time.Since(began).Round(time.Second))
	return nil
}

// watch runs a compiler, and reports that it still works.
func (o BuildOptions) watch(command *exec.Cmd, what string, began time.Time) error {
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
			return err
		case <-ticker.C:
			fmt.Fprintf(o.Log, "%s: still compiling, %s so far.\n", what, time.Since(began).Round(time.Second))
		}
	}
}

// goBuild compiles without cgo, so that the result runs on any machine of the same kind, and stamps the version that
// the API server reports (clients such as kubectl and Helm read it).
func goBuild(ctx context.Context, source, output string) *exec.Cmd {
	// grpcnotrace leaves out a tracing page whose templates keep the linker from dropping unused methods.
	return goCommand(ctx, source, "0", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", stamps(kubernetesVersion(source)), "-o", output, ".")
}

// goCommand is a call of the go tool in a module's directory. cgo is "0" or "1".
func goCommand(ctx context.Context, dir, cgo string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOWORK=off", "PWD="+dir)
	return command
}

// stamps are linker flags that leave out symbols, and set the version that programs of Kubernetes report.
func stamps(kubernetes string) string {
	flags := "-s -w"
	if parts := strings.SplitN(strings.TrimPrefix(kubernetes, "v"), ".", 3); len(parts) == 3 {
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, kubernetes, parts[0], parts[1])
		}
	}
	return flags
}

func kubernetesVersion(source string) string {
	data, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return ""
	}
	return required(requireKubernetes, data)
}

// buildRecipe is part of the key: raise it when goBuild changes what it makes.
const buildRecipe = "1"

// Key names what a build of the devcluster sources would be: it changes with every non-test source file, the
// dependency versions, the platform and the way of building.
//
// The module of the node's programs, which is in a directory of its own within, does not change it.
func Key(sourceDir string) (string, error) { return sourcesKey(sourceDir, buildRecipe, nodeModule) }

// sourcesKey is the key of the sources in a directory without those of one subdirectory.
func sourcesKey(sourceDir, recipe, without string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %s\n", recipe, runtime.GOOS, runtime.GOARCH)
	files := 0
	err := filepath.WalkDir(sourceDir, func(path string, entry fs.DirEntry, err error) error { // in lexical order
		if err == nil && without != "" && entry.IsDir() && path == filepath.Join(sourceDir, without) {
			return fs.SkipDir
		}
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

// lock waits for the one lock of a cache directory, and calls waiting if another process has it. The kernel gives it back when
// its holder dies.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("taking the build lock: %w", err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("waiting for the build lock: %w", context.Cause(ctx))
		case <-retry.C:
		}
	}
}
