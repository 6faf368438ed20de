// Command images builds Bullpen's container images, without a container engine and without a base image: it compiles the
// binary for each platform, puts it into a layer of its own, and writes an OCI layout, an archive, and a list of what is in
// the binary. The same sources give the same digests, in any directory, at any time and for any user.
//
// It is a module of its own, so that what it needs does not reach the product's go.mod. Nothing of the product is imported.
// Begin with run, then compile.go, image.go and publish.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// release is what the images of one build have in common.
type release struct {
	Name      string // of the repository, as clusters pull from it
	Version   string
	Revision  string // of the sources; may be empty
	Created   time.Time
	Platforms []v1.Platform
}

// tagPattern is what a registry takes for a tag.
var tagPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	source := flags.String("source", "..", "directory of Bullpen's sources")
	dist := flags.String("dist", "../dist", "directory to write to; what another build left there is removed")
	version := flags.String("version", "", "version to stamp, and the image's tag (required)")
	name := flags.String("name", "ghcr.io/bullpen-ci/bullpen", "repository that the image is named after")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "platforms to build for, separated by commas")
	created := flags.String("created", os.Getenv("SOURCE_DATE_EPOCH"), "time of the build in seconds since 1970 (default: $SOURCE_DATE_EPOCH, or that of the commit)")
	push := flags.String("push", "", "repository to push the images and their SBOMs to, such as registry.example.com/bullpen")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !tagPattern.MatchString(*version) {
		return fmt.Errorf("version %q cannot be an image's tag: give one of letters, digits, '.', '_' and '-' (-version)", *version)
	}
	r := release{Name: *name, Version: *version}
	var err error
	if r.Platforms, err = parsePlatforms(*platforms); err != nil {
		return err
	}
	if r.Created, err = buildTime(ctx, *source, *created); err != nil {
		return err
	}
	r.Revision = revision(ctx, *source)
	images, err := buildAll(ctx, *source, r)
	if err != nil {
		return err
	}
	set, err := assemble(r, images)
	if err != nil {
		return err
	}
	if err := write(*dist, r, set); err != nil {
		return err
	}
	if err := describe(out, *dist, r, set); err != nil {
		return err
	}
	if *push == "" {
		return nil
	}
	pushed, err := publish(ctx, *push, r, set)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "pushed       %s\n", pushed)
	return err
}

func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	for part := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(part)
		if err != nil {
			return nil, fmt.Errorf("reading -platforms: %w", err)
		}
		if p.OS != "linux" || (p.Architecture != "amd64" && p.Architecture != "arm64") {
			return nil, fmt.Errorf("no image is built for %q: choose from linux/amd64 and linux/arm64 (-platforms)", part)
		}
		platforms = append(platforms, *p)
	}
	return platforms, nil
}

// buildTime is what the files and the image say of their age: the commit's time, because a clock would differ each time.
func buildTime(ctx context.Context, source, given string) (time.Time, error) {
	if given == "" {
		output, err := git(ctx, source, "log", "-1", "--format=%ct")
		if err != nil {
			return time.Time{}, fmt.Errorf("finding the commit's time: %w; outside of a clone, set SOURCE_DATE_EPOCH", err)
		}
		given = output
	}
	seconds, err := strconv.ParseInt(given, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the build's time %q is no number of seconds since 1970 (SOURCE_DATE_EPOCH or -created)", given)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// revision names the commit, and whether the sources differ from it. Without git there is none to name.
func revision(ctx context.Context, source string) string {
	commit, err := git(ctx, source, "rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	if changes, err := git(ctx, source, "status", "--porcelain", "--untracked-files=no"); err != nil || changes != "" {
		return commit + "-dirty"
	}
	return commit
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(output)), nil
}
