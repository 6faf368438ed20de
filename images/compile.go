package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// program is the binary of one platform.
type program struct {
	Platform v1.Platform
	Content  []byte
	SHA256   string
	Info     *debug.BuildInfo
}

// mac is the platform of the binary that the controller brings to Macs. Every image has it, beside its own.
var mac = v1.Platform{OS: "darwin", Architecture: "arm64"}

// pair is what one platform's image starts: the product, and the agent that runner pods copy.
type pair struct{ Product, Agent program }

// programs are what is put into images: one of these pairs and the program for Macs into each.
type programs struct {
	Own []pair // in the order of the release's platforms
	Mac program
}

// buildAll compiles the product for each platform, and for Macs. The binaries are held in memory; their files are gone.
func buildAll(ctx context.Context, source string, r release) (programs, error) {
	work, err := os.MkdirTemp("", "bullpen-images-")
	if err != nil {
		return programs{}, err
	}
	defer os.RemoveAll(work)
	var all programs
	build := func(pkg string, platform v1.Platform) (program, error) {
		file := filepath.Join(work, filepath.Base(pkg)+"-"+platform.OS+"-"+platform.Architecture)
		if err := compile(ctx, source, pkg, r.Version, platform, file); err != nil {
			return program{}, err
		}
		return inspect(file, platform)
	}
	for _, platform := range r.Platforms {
		var own pair
		if own.Product, err = build(productPackage, platform); err != nil {
			return programs{}, err
		}
		if own.Agent, err = build(agentPackage, platform); err != nil {
			return programs{}, err
		}
		all.Own = append(all.Own, own)
	}
	all.Mac, err = build(productPackage, mac)
	return all, err
}

const (
	productPackage = "./cmd/bullpen"
	agentPackage   = "./cmd/bullpen-agent"
)

// compile builds one command. Nothing of the directory, the machine or the person's own settings is in the result: paths are
// trimmed, neither the repository nor a build id is stamped, and the toolchain is the one that go.mod names.
func compile(ctx context.Context, source, pkg, version string, platform v1.Platform, file string) error {
	environment, err := compilerEnvironment(ctx, source, platform)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags=production", //nolint:gosec // the arguments are ours
		"-ldflags=-s -w -buildid= -X main.version="+version, "-o", file, pkg)
	command.Dir, command.Env = source, environment
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling %s for %s: %w\n%s", pkg, platform.String(), err, output)
	}
	return nil
}

// settings are those by which modules are found, and where they are kept. They do not reach the binary.
var settings = []string{"GOAUTH", "GOCACHE", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE", "GOPROXY", "GOSUMDB", "GOVCS"}

// compilerEnvironment is this process's without what changes the code that is generated, be it set here or by `go env -w`.
func compilerEnvironment(ctx context.Context, source string, platform v1.Platform) ([]string, error) {
	toolchain, err := goVersion(filepath.Join(source, "go.mod"))
	if err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, settings...)...).Output() //nolint:gosec // constants
	if err != nil {
		return nil, fmt.Errorf("reading Go's settings: %w", err)
	}
	var kept map[string]string
	if err := json.Unmarshal(output, &kept); err != nil {
		return nil, fmt.Errorf("reading Go's settings: %w", err)
	}
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GO") || strings.HasPrefix(variable, "CGO_")
	})
	for _, name := range settings {
		environment = append(environment, name+"="+kept[name])
	}
	return append(environment, "GOENV=off", "GOWORK=off", "GOTOOLCHAIN=go"+toolchain, "CGO_ENABLED=0",
		"GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOAMD64=v1", "GOARM64=v8.0"), nil
}

var goLine = regexp.MustCompile(`(?m)^go (\S+)$`)

func goVersion(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("finding the sources: %w", err)
	}
	found := goLine.FindSubmatch(raw)
	if found == nil {
		return "", fmt.Errorf("%s names no Go version", file)
	}
	return string(found[1]), nil
}

// inspect reads a binary, and refuses one that could not run in an image that holds nothing else.
func inspect(file string, platform v1.Platform) (program, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	check := checkStatic
	if platform.OS == mac.OS {
		check = checkMac
	}
	if err := check(file, platform); err != nil {
		return program{}, fmt.Errorf("the binary for %s: %w", platform.String(), err)
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return program{}, fmt.Errorf("reading what the binary is made of: %w", err)
	}
	sum := sha256.Sum256(content)
	return program{Platform: platform, Content: content, SHA256: hex.EncodeToString(sum[:]), Info: info}, nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func checkStatic(file string, platform v1.Platform) error {
	binary, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = binary.Close() }()
	if want := machines[platform.Architecture]; binary.Machine != want {
		return fmt.Errorf("it is for %s", binary.Machine)
	}
	for _, segment := range binary.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			return errors.New("it is linked dynamically, and the image has no loader and no library for it")
		}
	}
	return nil
}

// checkMac refuses what would need more of a Mac than it has. Go's linker signs what it makes for Macs with Apple silicon, which they
// ask of every program; the signature is of no person (ad hoc).
func checkMac(file string, _ v1.Platform) error {
	binary, err := macho.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = binary.Close() }()
	if binary.Cpu != macho.CpuArm64 {
		return fmt.Errorf("it is for %s", binary.Cpu)
	}
	libraries, err := binary.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading what it is linked with: %w", err)
	}
	for _, library := range libraries {
		if !strings.HasPrefix(library, "/usr/lib/") && !strings.HasPrefix(library, "/System/Library/") {
			return fmt.Errorf("it is linked with %s, which is no part of macOS", library)
		}
	}
	const codeSignature = 0x1d // LC_CODE_SIGNATURE
	for _, load := range binary.Loads {
		if raw := load.Raw(); len(raw) >= 4 && binary.ByteOrder.Uint32(raw) == codeSignature {
			return nil
		}
	}
	return errors.New("it is not signed, and macOS would end it")
}
