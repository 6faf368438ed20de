package guards

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// Overlay writes the weakened files into dir, and the file that tells the go command to take them in place of the tree's.
func (g Guard) Overlay(root, dir string) (string, error) {
	files, err := g.Weaken(root)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making a directory for weakened files: %w", err)
	}
	replace := map[string]string{}
	for path, text := range files {
		weakened := filepath.Join(dir, strconv.Itoa(len(replace))+"-"+filepath.Base(path))
		if err := os.WriteFile(weakened, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("writing a weakened file: %w", err)
		}
		replace[filepath.Join(root, path)] = weakened
	}
	overlay := filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("encoding an overlay: %w", err)
	}
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return "", fmt.Errorf("writing an overlay: %w", err)
	}
	return overlay, nil
}

// Binaries are the executables of one soak: the product, the agent of runner pods, and the soak itself, which carries the node agents
// of the synthetic machines and the manifests.
type Binaries struct{ Product, Agent, Soak string }

// The packages that they are built from.
const (
	productPackage = "./cmd/bullpen"
	agentPackage   = "./cmd/bullpen-agent"
	soakPackage    = "./test/soak/run"
)

// Builder builds executables without some of the product's guards. Packages that a guard does not touch are built once. It is not safe for
// concurrent use.
type Builder struct {
	// Root is the module's directory, and Dir takes what is built.
	Root, Dir string

	sound    Binaries
	packages map[string][]string // of each executable: the directories of its packages, relative to Root
}

// Sound builds all as they are.
func (b *Builder) Sound(ctx context.Context) (Binaries, error) {
	if b.sound != (Binaries{}) {
		return b.sound, nil
	}
	b.packages = map[string][]string{}
	made := Binaries{Product: filepath.Join(b.Dir, "bullpen"), Agent: filepath.Join(b.Dir, "bullpen-agent"), Soak: filepath.Join(b.Dir, "soak")}
	for path, pkg := range map[string]string{made.Product: productPackage, made.Agent: agentPackage, made.Soak: soakPackage} {
		if err := b.build(ctx, path, pkg); err != nil {
			return made, err
		}
		list := exec.CommandContext(ctx, "go", "list", "-deps", "-tags", "faultpoints", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", pkg)
		list.Dir = b.Root
		output, err := list.Output()
		if err != nil {
			return made, fmt.Errorf("listing the packages of %s: %w", pkg, err)
		}
		for dir := range strings.Lines(string(output)) {
			if relative, err := filepath.Rel(b.Root, strings.TrimSpace(dir)); err == nil && filepath.IsLocal(relative) {
				b.packages[pkg] = append(b.packages[pkg], relative)
			}
		}
	}
	b.sound = made
	return made, nil
}

// Without builds what the guard is a part of without it, into a directory that the caller removes.
func (b *Builder) Without(ctx context.Context, g Guard, dir string) (Binaries, error) {
	made, err := b.Sound(ctx)
	if err != nil || len(g.Edits) == 0 {
		return made, err
	}
	overlay, err := g.Overlay(b.Root, dir)
	if err != nil {
		return made, err
	}
	for pkg, path := range map[string]*string{productPackage: &made.Product, agentPackage: &made.Agent, soakPackage: &made.Soak} {
		if !b.holds(pkg, g) {
			continue
		}
		*path = filepath.Join(dir, filepath.Base(*path))
		if err := b.build(ctx, *path, pkg, "-overlay", overlay); err != nil {
			return made, fmt.Errorf("without %s: %w", g.Name, err)
		}
	}
	return made, nil
}

// holds reports whether the executable has a package that the guard is switched off in. A file that is embedded lies below its
// package.
func (b *Builder) holds(pkg string, g Guard) bool {
	return slices.ContainsFunc(g.Edits, func(e Edit) bool {
		for dir := filepath.Dir(e.File); dir != "."; dir = filepath.Dir(dir) {
			if slices.Contains(b.packages[pkg], dir) {
				return true
			}
		}
		return false
	})
}

func (b *Builder) build(ctx context.Context, path, pkg string, flags ...string) error {
	build := gobuild.Command(ctx, b.Root, path, pkg, append([]string{"-tags", "faultpoints"}, flags...)...)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, output)
	}
	return nil
}

// Together combines the guards into as few as possible that can be switched off at once: the edits of each must leave the texts of the
// next. All of them are then compiled in one go.
func Together(root string, all []Guard) ([]Guard, error) {
	var merged []Guard
next:
	for _, g := range all {
		if _, err := g.Weaken(root); err != nil {
			return nil, err
		}
		for i := range merged {
			both := Guard{Name: merged[i].Name + ", " + g.Name, Edits: slices.Clone(merged[i].Edits)}
			for _, e := range g.Edits {
				if !slices.Contains(both.Edits, e) {
					both.Edits = append(both.Edits, e)
				}
			}
			if _, err := both.Weaken(root); err == nil {
				merged[i] = both
				continue next
			}
		}
		merged = append(merged, g)
	}
	return merged, nil
}

// Compile compiles the packages that the guard is switched off in, and links nothing.
func (g Guard) Compile(ctx context.Context, root, dir string) error {
	overlay, err := g.Overlay(root, dir)
	if err != nil {
		return err
	}
	flags := []string{"build", "-trimpath", "-tags", "faultpoints", "-overlay", overlay}
	var packages []string
	for _, e := range g.Edits {
		if pkg := "./" + filepath.Dir(e.File); filepath.Ext(e.File) == ".go" && !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	if len(packages) == 0 {
		return nil // manifests alone
	}
	compile := exec.CommandContext(ctx, "go", append(flags, packages...)...)
	compile.Dir, compile.Env = root, append(os.Environ(), "CGO_ENABLED=0") // as gobuild's: what is not changed is there already
	if output, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the product without %s: %w\n%s", g.Name, err, output)
	}
	return nil
}
