package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// EnvNode names a complete directory of a node's programs.
const EnvNode = "BULLPEN_NODE_ASSETS"

// ErrNodeMissing reports that no complete directory of a node's programs was found. The message around it says what to do.
var ErrNodeMissing = errors.New("programs of a Kubernetes node not found")

const (
	// nodeModule is the directory, within the devcluster's sources, of the module of what is not Kubernetes' own.
	nodeModule = "node"
	// nodeRecipe is part of the key: raise it when buildPart changes what it makes.
	nodeRecipe = "node-1"
)

// part is one executable of a node, and how it is compiled.
type part struct {
	name  string
	links []string // other names that it is started under
	dir   string   // of its module, within the devcluster's sources
	pkg   string
	tags  string
	cgo   bool
	// cost is what a fresh build computes, in seconds of one core: package realnode's documentation says how it was measured.
	cost int
	// version is what the program says of itself on PATH, by which a ready-made one is recognised. ofKubernetes is the one that go.mod
	// pins. A part without one is always compiled: it is ours.
	version []string
	// tooOld are versions that cannot be used: runc before 1.2 knows no user namespaces.
	tooOld []string
}

const ofKubernetes = "of Kubernetes"

// parts are what a node runs. containerd leaves out the snapshotters that need a file system of their own; runc is built with libseccomp, which
// Debian has, since its filters are part of every runner's pod.
func parts() []part {
	const containerd = "github.com/containerd/containerd/v2/cmd/"
	slim := "grpcnotrace,no_btrfs,no_devmapper,no_zfs"
	return []part{
		{name: "node-init", dir: nodeModule, pkg: "./init", cost: 2},
		{name: "pause", dir: nodeModule, pkg: "./pause", cost: 1},
		{name: "kubelet", links: []string{"kube-proxy"}, dir: ".", pkg: "./kubelet", tags: "grpcnotrace", cost: 50, version: []string{ofKubernetes}},
		{name: "containerd", dir: nodeModule, pkg: containerd + "containerd", tags: slim, cost: 100, version: []string{"containerd", "v2."}},
		{name: "containerd-shim-runc-v2", dir: nodeModule, pkg: containerd + "containerd-shim-runc-v2", tags: slim, cost: 2, version: []string{"containerd", "v2."}},
		{name: "ctr", dir: nodeModule, pkg: containerd + "ctr", tags: slim, cost: 8, version: []string{"ctr", "v2."}},
		{name: "runc", dir: nodeModule, pkg: "github.com/opencontainers/runc", tags: "seccomp", cgo: true, cost: 20, version: []string{"runc version 1."},
			tooOld: []string{"runc version 1.0.", "runc version 1.1."}},
		{name: "coredns", dir: nodeModule, pkg: "./coredns", tags: "grpcnotrace", cost: 90, version: []string{"CoreDNS-1."}},
		{name: "kube-router", dir: nodeModule, pkg: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", tags: "grpcnotrace", cost: 100, version: []string{"kube-router"}},
	}
}

// NodeNames are the executables that a complete directory of a node's programs has.
func NodeNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(append(names, p.name), p.links...)
	}
	return names
}

// FindNode returns the absolute path of a complete directory of a node's programs: the one that $BULLPEN_NODE_ASSETS names, which has to be
// complete, or the one that BuildNode made. When there is none the error is ErrNodeMissing.
func FindNode(o Options) (string, error) {
	o = o.withDefaults()
	if dir := o.Getenv(EnvNode); dir != "" {
		if lacks := lacking(dir, NodeNames()); len(lacks) > 0 {
			return "", fmt.Errorf("%w: %s ($%s) lacks %s", ErrNodeMissing, dir, EnvNode, strings.Join(lacks, ", "))
		}
		return filepath.Abs(dir)
	}
	dir, err := foundNodeDir(o)
	if err == nil {
		if lacks := lacking(dir, NodeNames()); len(lacks) > 0 {
			err = fmt.Errorf("%s lacks %s", dir, strings.Join(lacks, ", "))
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w; run `make node` in the repository, or point $%s at a directory that has %s",
			ErrNodeMissing, err, EnvNode, strings.Join(NodeNames(), ", "))
	}
	return dir, nil
}

// foundNodeDir needs no sources in a binary that was stamped.
func foundNodeDir(o Options) (string, error) {
	if nodeKey != "" && o.SourceDir == "" {
		return cacheDirOf(o.Getenv, "node", nodeKey)
	}
	_, dir, err := nodeDir(o)
	return dir, err
}

func nodeDir(o Options) (source, dir string, err error) {
	if source, err = resolveSource(o.SourceDir); err != nil {
		return "", "", err
	}
	key, err := sourcesKey(source, nodeRecipe, "")
	if err != nil {
		return "", "", err
	}
	dir, err = cacheDirOf(o.Getenv, "node", key)
	return source, dir, err
}

// BuildNode returns a complete directory of a node's programs. When there is none it makes one: of programs on PATH if all are there, in versions
// that can be used, and otherwise compiled, once per version of the sources. Builds of one cache wait for each other.
func BuildNode(ctx context.Context, o BuildOptions) (string, error) {
	o = o.withDefaults()
	if o.Getenv(EnvNode) != "" {
		return FindNode(o.Options)
	}
	source, dir, err := nodeDir(o.Options)
	if err != nil {
		return "", fmt.Errorf("building the programs of a node: %w", err)
	}
	if len(lacking(dir, NodeNames())) == 0 {
		return dir, nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache directory: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(parent, ".lock"), func() {
		fmt.Fprintln(o.Log, "node: waiting for another process that compiles the programs of a node.")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if len(lacking(dir, NodeNames())) == 0 { // another process finished while this one waited
		return dir, nil
	}
	return dir, o.buildNode(ctx, source, dir)
}

// buildNode compiles into dir. The caller holds the lock. What is compiled by the time of an interruption is in Go's cache.
func (o BuildOptions) buildNode(ctx context.Context, source, dir string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), ".building-")
	if err != nil {
		return fmt.Errorf("creating the build directory: %w", err)
	}
	defer os.RemoveAll(work)
	found := o.nodeOnPath(ctx, source, filepath.Dir(dir))
	began, all := time.Now(), parts()
	if len(found) == 0 {
		total := 0
		for _, p := range all {
			total += p.cost
		}
		fmt.Fprintf(o.Log, "node: compiling the programs of a Kubernetes node, once: %s.\nnode: about %d seconds on two cores.\n",
			strings.Join(NodeNames(), ", "), total/2)
	}
	for i, p := range all {
		if path, ready := found[p.name]; ready {
			fmt.Fprintf(o.Log, "node: using %s.\n", path)
			if err := link(path, filepath.Join(work, p.name)); err != nil {
				return err
			}
		} else if err := o.compilePart(ctx, source, p, fmt.Sprintf("%d of %d", i+1, len(all)), work); err != nil {
			return err
		}
		for _, name := range p.links {
			target := p.name
			if path, ready := found[name]; ready {
				target = path
			}
			if err := link(target, filepath.Join(work, name)); err != nil {
				return err
			}
		}
	}
	if err := os.Chmod(work, 0o755); err != nil { // MkdirTemp makes it private; pods of other users run what is in it
		return fmt.Errorf("opening the build directory: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the incomplete %s: %w", dir, err)
	}
	if err := os.Rename(work, dir); err != nil {
		return fmt.Errorf("publishing the build: %w", err)
	}
	fmt.Fprintf(o.Log, "node: done after %s.\n", time.Since(began).Round(time.Second))
	return nil
}

func (o BuildOptions) compilePart(ctx context.Context, source string, p part, turn, work string) error {
	began, output := time.Now(), filepath.Join(work, p.name)
	fmt.Fprintf(o.Log, "node: %s, %s.\n", turn, strings.Join(append([]string{p.name}, p.links...), " and "))
	if err := o.watch(o.part(ctx, source, p, output), "node", began); err != nil {
		if p.cgo {
			err = fmt.Errorf("%w (it needs a C compiler and libseccomp's headers: scripts/prerequisites.sh node)", err)
		}
		return fmt.Errorf("compiling %s: %w", p.name, err)
	}
	info, err := os.Stat(output)
	if err != nil {
		return fmt.Errorf("compiling %s: %w", p.name, err)
	}
	fmt.Fprintf(o.Log, "node: %s has %d MiB, after %s.\n", p.name, (info.Size()+1<<19)>>20, time.Since(began).Round(time.Second))
	return nil
}

func buildPart(ctx context.Context, source string, p part, output string) *exec.Cmd {
	flags, cgo := "-s -w", "0"
	if p.version != nil && p.version[0] == ofKubernetes {
		flags = stamps(kubernetesVersion(source))
	}
	if p.cgo {
		cgo = "1"
	}
	args := []string{"build", "-trimpath", "-ldflags", flags, "-o", output}
	if p.tags != "" {
		args = append(args, "-tags", p.tags)
	}
	return goCommand(ctx, filepath.Join(source, p.dir), cgo, append(args, p.pkg)...)
}

// nodeOnPath finds the programs of a node on PATH. They are used together or not at all: a set of which each part was chosen by the same
// hands works together.
func (o BuildOptions) nodeOnPath(ctx context.Context, source, cache string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, o.versions)
	defer cancel()
	found := map[string]string{}
	for _, p := range parts() {
		if p.version == nil {
			continue
		}
		for _, name := range append([]string{p.name}, p.links...) {
			path, err := exec.LookPath(name)
			if err != nil {
				return nil
			}
			if path, err = filepath.Abs(path); err != nil || strings.HasPrefix(path, cache+string(filepath.Separator)) || !p.usable(ctx, source, path) {
				return nil
			}
			found[name] = path
		}
	}
	return found
}

// usable runs the program to ask for its version.
func (p part) usable(ctx context.Context, source, path string) bool {
	command := exec.CommandContext(ctx, path, "--version")
	if p.name == "coredns" { // it has no such flag
		command = exec.CommandContext(ctx, path, "-version")
	}
	command.WaitDelay = time.Second // a child of a wrapper script may hold the pipe
	output, err := command.CombinedOutput()
	if err != nil {
		return false
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
	if p.version[0] == ofKubernetes {
		return line == "Kubernetes "+kubernetesVersion(source)
	}
	lacks := func(words string) bool { return !strings.Contains(line, words) }
	return !slices.ContainsFunc(p.version, lacks) && !slices.ContainsFunc(p.tooOld, func(words string) bool { return !lacks(words) })
}
