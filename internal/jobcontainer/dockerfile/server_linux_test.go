package dockerfile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile/builder"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const patience = 30 * time.Second

// TestMain is also the agent, and stands in for buildctl and runc, by the name under which it is started.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == "buildctl":
		os.Exit(buildctl(os.Args[1:]))
	case name == "runc":
		os.Exit(runc(os.Args[1:]))
	case len(os.Args) > 2 && os.Args[1] == "dockerfile" && os.Args[2] == "--unpack" && os.Geteuid() != 0:
		os.Exit(asRoot(os.Args[1:]))
	case len(os.Args) > 2 && os.Args[1] == "dockerfile" && os.Args[2] == "--unpack":
		if err := Unpack(os.Args[3], os.Args[5:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// asRoot starts this program again as root of a user namespace of its own, as BuildKit's container has one.
func asRoot(args []string) int {
	command := exec.CommandContext(context.Background(), "/proc/self/exe", args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	if err := command.Run(); err != nil { // bounded: the test ends this process
		return 1
	}
	return 0
}

// buildctl goes by the Dockerfile: it fails, waits until it is killed, or writes the image that is in the context.
func buildctl(args []string) int {
	if slices.Equal(args, []string{"--addr", "unix:///socket", "prune", "--filter", "type==source.local"}) {
		return 0
	}
	want := []string{"--addr", "unix:///socket", "build", "--progress", "plain", "--frontend", "dockerfile.v0", "--local", "context=.", "--local", "dockerfile=.",
		"--opt", "filename=Dockerfile", "--output"}
	output, found := strings.CutPrefix(args[len(args)-1], "type=oci,tar=false,compression=uncompressed,force-compression=true,dest=")
	if !found || !slices.Equal(args[:len(args)-1], want) {
		fmt.Println("unknown arguments", args)
		return 99
	}
	fmt.Fprintln(os.Stderr, "#1 building")
	content, err := os.ReadFile("Dockerfile")
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "error: failed to read dockerfile")
		return 1
	case string(content) == "fails":
		fmt.Fprint(os.Stderr, "error: a step has failed")
		return 1
	case string(content) == "waits":
		_ = os.WriteFile("waiting", nil, 0o600)
		<-time.After(time.Hour) // bounded: it is killed
	}
	if err := os.CopyFS(output, os.DirFS("image")); err != nil {
		fmt.Println(err)
		return 98
	}
	return 0
}

// runc runs one container until it is deleted; of the bundle it does what a test can see without root. Its state is a directory, as runc's is: of a
// container that has none yet, "delete" says nothing (delete.go of runc 1.5).
func runc(args []string) int {
	if len(args) == 5 && args[0] == "--root" && args[2] == "delete" && args[3] == "--force" {
		state := filepath.Join(args[1], args[4])
		if _, err := os.Stat(state); err != nil {
			return ended(os.WriteFile(state+".asked", nil, 0o600))
		}
		_ = os.WriteFile(filepath.Join(state, "end"), nil, 0o600) // unless it has just ended
		return 0
	}
	if len(args) != 6 || args[0] != "--root" || args[2] != "run" || args[3] != "--bundle" {
		fmt.Println("unknown arguments", args)
		return 99
	}
	state, bundle, name := filepath.Join(args[1], args[5]), args[4], args[5]
	content, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	var spec specs.Spec
	if err != nil || json.Unmarshal(content, &spec) != nil || !slices.Equal(spec.Process.Args, jobcontainer.Command(name)) {
		fmt.Println("the bundle is invalid")
		return 97
	}
	how, err := os.ReadFile(filepath.Join(bundle, spec.Root.Path, "how"))
	if err == nil {
		err = os.MkdirAll(args[1], 0o700)
	}
	if err != nil {
		return ended(err)
	}
	switch string(how) {
	case "refused":
		fmt.Fprintln(os.Stderr, "runc run failed: it is refused")
		return 1
	case "deaf":
		<-time.After(time.Hour) // bounded: it is killed
	case "guarded": // the guard's directory is in the volume, which is two above
		guard := filepath.Join(bundle, "..", "..", "job", name)
		if err := os.MkdirAll(guard, 0o700); err != nil {
			return ended(err)
		}
		if err := os.WriteFile(filepath.Join(guard, "guard.sock"), nil, 0o600); err != nil {
			return ended(err)
		}
	}
	return contain(state, bundle, string(how) == "late")
}

// contain is a container from its state's beginning to its end. Without its files it ends, too: the test is over.
func contain(state, bundle string, late bool) int {
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	for late && !exists(state+".asked") && exists(bundle) {
		<-time.After(5 * time.Millisecond) // bounded: see above
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		return ended(err)
	}
	for !exists(filepath.Join(state, "end")) && exists(bundle) {
		<-time.After(5 * time.Millisecond) // bounded: see above
	}
	return ended(os.RemoveAll(state))
}

func ended(err error) int {
	if err == nil {
		return 0
	}
	fmt.Println(err)
	return 96
}

// pod is a server with its directories.
type pod struct {
	*testing.T
	dir    string
	client *builder.Client
	log    bytes.Buffer
}

func newPod(t *testing.T, change func(o *Options)) *pod {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{"buildctl", "runc"} {
		require.NoError(t, os.Symlink(self, filepath.Join(dir, name)))
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	p := &pod{T: t, dir: dir, client: builder.NewClient(filepath.Join(dir, "s"))}
	o := Options{
		Root: filepath.Join(dir, "actions"), BuildKit: "/socket", Runc: filepath.Join(dir, "runc"), JobDir: filepath.Join(dir, "job"), Self: self,
		Buildctl: filepath.Join(dir, "buildctl"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&o)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, listener, o) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, await.Result(served, "the server ends"))
		require.Eventually(t, func() bool { return len(p.left()) == 0 }, patience, 5*time.Millisecond, "its containers' directories are removed")
	})
	return p
}

// left are the directories of containers.
func (p *pod) left() []string {
	found, err := filepath.Glob(filepath.Join(p.dir, "actions", "[a-z]*"))
	require.NoError(p, err)
	return found
}

// context is the directory of an action, whose container does as said.
func (p *pod) context(dockerfile, how string) string {
	dir := p.TempDir()
	require.NoError(p, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600))
	writeLayout(p, filepath.Join(dir, "image"), v1.Config{User: "7"}, types.OCIUncompressedLayer, archive(p, file{name: "how", content: how}))
	return dir
}

func (p *pod) make(ctx context.Context, name, dir string) (builder.Built, error) {
	p.log.Reset()
	return p.client.Make(ctx, builder.Request{Container: name, Directory: dir, File: "Dockerfile"}, &p.log)
}

func (p *pod) end(name string) {
	state := filepath.Join(p.dir, "actions", ".runc", name)
	require.Eventually(p, func() bool { return os.WriteFile(filepath.Join(state, "end"), nil, 0o600) == nil }, patience, 5*time.Millisecond)
}

func TestServe_MakesAContainer(t *testing.T) {
	p := newPod(t, nil)
	built, err := p.make(t.Context(), "action-1", p.context("builds", "guarded"))
	require.NoError(t, err)
	require.Equal(t, "7", built.Config.User)
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", built.Image)
	require.Equal(t, "#1 building\n", p.log.String())
	require.NoDirExists(t, filepath.Join(p.dir, "actions", "action-1", "image"), "the disk has it once")
	info, err := os.Stat(filepath.Join(p.dir, "actions"))
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())

	_, err = p.make(t.Context(), "action-1", p.context("builds", "guarded"))
	require.ErrorContains(t, err, "there is a container action-1 already")
	_, err = p.make(t.Context(), "action-2", p.context("builds", "guarded"))
	require.NoError(t, err, "beside the first one")
	p.end("action-1")
	p.end("action-2")
}

func TestServe_SaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change          func(o *Options)
		dockerfile, how string
		want, log       string
	}{
		"a step fails":          {dockerfile: "fails", want: "the build has failed (exit code 1)", log: "#1 building\nerror: a step has failed"},
		"no buildctl":           {change: func(o *Options) { o.Buildctl = "/nonexistent" }, want: "the image of BuildKit has no buildctl. An administrator must set another one in buildKit.image of the pool"},
		"no runc":               {change: func(o *Options) { o.Runc = "/nonexistent" }, how: "guarded", want: "runc can't be started: fork/exec /nonexistent: no such file or directory", log: "#1 building\n"},
		"runc fails":            {how: "refused", want: "its container has ended: runc run failed: it is refused", log: "#1 building\n"},
		"its guard never comes": {change: func(o *Options) { o.GuardPatience = 50 * time.Millisecond }, how: "unguarded", want: "its container did not start within 50ms: no message", log: "#1 building\n"},
		"no program to unpack":  {change: func(o *Options) { o.Self = "/nonexistent" }, want: "fork/exec /nonexistent: no such file or directory", log: "#1 building\n"},
		"a damaged layer":       {change: func(o *Options) { o.Self = "/bin/false" }, want: "exit status 1", log: "#1 building\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, c.change)
			_, err := p.make(t.Context(), "action-1", p.context(c.dockerfile, c.how))
			failure := new(builder.Failure)
			require.ErrorAs(t, err, &failure)
			require.Equal(t, c.want, failure.Text)
			require.Equal(t, c.log, p.log.String())
			require.Eventually(t, func() bool { return len(p.left()) == 0 }, patience, 5*time.Millisecond, "nothing of it is left")
		})
	}
}

func TestServe_RefusesWhatNoHookSends(t *testing.T) {
	p := newPod(t, nil)
	dir := p.context("builds", "guarded")
	for _, r := range []builder.Request{
		{}, {Container: "../x", Directory: dir, File: "Dockerfile"}, {Container: "A", Directory: dir, File: "Dockerfile"}, {Container: ".runc", Directory: dir, File: "Dockerfile"},
		{Container: "a", Directory: "relative", File: "Dockerfile"}, {Container: "a", Directory: dir}, {Container: "a", Directory: dir, File: "../Dockerfile"},
		{Container: "a", Directory: dir, File: ".."}, {Container: strings.Repeat("a", 64), Directory: dir, File: "Dockerfile"},
	} {
		_, err := p.client.Make(t.Context(), r, io.Discard)
		failure := new(builder.Failure)
		require.ErrorAs(t, err, &failure, "%+v", r)
		require.Contains(t, failure.Text, "invalid", "%+v", r)
	}
	_, err := p.client.Make(t.Context(), builder.Request{Container: "a", Directory: "/" + strings.Repeat("x", builder.MaxRequest)}, io.Discard)
	require.EqualError(t, err, "the builder does not understand the request")
	require.Empty(t, p.left())
}

// A job that is cancelled leaves no build behind, and one that waits for its turn does not begin.
func TestServe_ABuildEndsWithItsClient(t *testing.T) {
	p := newPod(t, nil)
	dir := p.context("waits", "")
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan error, 2)
	ask := func(name string) {
		_, err := p.client.Make(ctx, builder.Request{Container: name, Directory: dir, File: "Dockerfile"}, io.Discard)
		made <- err
	}
	go ask("action-1")
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "waiting")); return err == nil }, patience, 5*time.Millisecond)
	go ask("action-2")
	cancel()
	require.ErrorIs(t, await.Result(made, "the first ends"), context.Canceled)
	require.ErrorIs(t, await.Result(made, "the second ends"), context.Canceled)
	require.Eventually(t, func() bool { return len(p.left()) == 0 }, patience, 5*time.Millisecond)
	built, err := p.make(t.Context(), "action-3", p.context("builds", "guarded"))
	require.NoError(t, err, "it is the next one's turn")
	require.NotEmpty(t, built.Image)
	p.end("action-3")
}

// A hook that is killed while its container starts cannot end it.
func TestServe_AContainerThatNobodyWaitsForEnds(t *testing.T) {
	p := newPod(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan error, 1)
	dir := p.context("builds", "unguarded")
	go func() {
		_, err := p.client.Make(ctx, builder.Request{Container: "action-1", Directory: dir, File: "Dockerfile"}, io.Discard)
		made <- err
	}()
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "actions", "action-1", bundleConfig))
		return err == nil
	}, patience, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, await.Result(made, "it ends"), context.Canceled)
	require.Eventually(t, func() bool { return len(p.left()) == 0 }, patience, 5*time.Millisecond)
}

// runc is asked to end a container before it knows of it.
func TestServe_AContainerThatStartsLateEnds(t *testing.T) {
	p := newPod(t, func(o *Options) { o.GuardPatience = time.Millisecond })
	_, err := p.make(t.Context(), "action-1", p.context("builds", "late"))
	require.ErrorContains(t, err, "did not start within 1ms")
	require.Empty(t, p.left(), "it has ended")
}

// runc itself hangs.
func TestServe_GivesUpWhatDoesNotEnd(t *testing.T) {
	p := newPod(t, func(o *Options) { o.GuardPatience, o.EndPatience = time.Millisecond, 50*time.Millisecond })
	_, err := p.make(t.Context(), "action-1", p.context("builds", "deaf"))
	require.ErrorContains(t, err, "did not start within 1ms")
	require.Eventually(t, func() bool { return len(p.left()) == 0 }, patience, 5*time.Millisecond)
}

// A server that was killed has left files, and a container that still runs.
func TestServe_RemovesWhatOneBeforeHasLeft(t *testing.T) {
	var left, runs string
	p := newPod(t, func(o *Options) {
		left, runs = filepath.Join(o.Root, "action-1"), filepath.Join(o.Root, "action-2")
		require.NoError(t, os.MkdirAll(filepath.Join(left, "image"), 0o700))
		require.NoError(t, os.MkdirAll(filepath.Join(runs, bundleRoot), 0o700))
		require.NoError(t, os.MkdirAll(filepath.Join(o.Root, ".runc", "action-2"), 0o700))
	})
	_, err := p.make(t.Context(), "action-3", p.context("fails", ""))
	require.ErrorContains(t, err, "the build has failed", "it serves")
	require.NoDirExists(t, left)
	require.DirExists(t, runs)
	require.NoError(t, os.RemoveAll(runs))
}

func TestServe_RequiresItsOptions(t *testing.T) {
	require.ErrorContains(t, Serve(t.Context(), nil, Options{}), "are required")
}

// What a container of an action may do is what its pod's other containers may.
func TestSpecification_NET7_HasNoMoreThanOtherContainers(t *testing.T) {
	spec := specification("action-1")
	for _, set := range [][]string{spec.Process.Capabilities.Bounding, spec.Process.Capabilities.Effective, spec.Process.Capabilities.Permitted} {
		require.NotContains(t, set, "CAP_SYS_ADMIN")
		require.NotContains(t, set, "CAP_NET_ADMIN")
		require.Len(t, set, 14)
	}
	require.Empty(t, spec.Process.Capabilities.Inheritable)
	require.Empty(t, spec.Process.Capabilities.Ambient)
	for _, n := range spec.Linux.Namespaces {
		require.Empty(t, n.Path)
	}
	fixed := []string{"/sys", jobcontainer.ExternalsDir, jobcontainer.GuardDir} // JOB-1
	var shared []string
	for _, m := range spec.Mounts {
		if m.Type == "bind" {
			shared = append(shared, m.Destination)
			require.Equal(t, slices.Contains(fixed, m.Destination), slices.Contains(m.Options, "ro"), m.Destination)
		}
		require.NotContains(t, m.Source, "buildkit", "the daemon's files are its own")
	}
	require.ElementsMatch(t, []string{
		"/sys", jobcontainer.ExternalsDir, jobcontainer.GuardDir, jobcontainer.Dir, jobcontainer.WorkDir, jobcontainer.GitHubDir, "/etc/hosts", "/etc/resolv.conf",
	}, shared)
}
