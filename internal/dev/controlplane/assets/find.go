package assets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// Environment variables that Find reads.
const (
	// EnvAssets names a complete directory to use, or a mirror to download from (http:// or https://), or is Off.
	EnvAssets = "BULLPEN_ASSETS"
	// EnvKubebuilder is envtest's variable. It is used when its directory has all the names; the directories that envtest's
	// own setup makes lack the controller manager and the scheduler, and are skipped.
	EnvKubebuilder = "KUBEBUILDER_ASSETS"
	// EnvCache overrides the cache directory, which is otherwise "bullpen" in the user's cache directory.
	EnvCache = "BULLPEN_CACHE"
)

// ErrMissing reports that no complete directory was found. The message around it says what to do.
var ErrMissing = errors.New("control plane executables not found")

// sourceKey and releaseKey are Key and ReleaseKey of the devcluster sources that the product binary was built beside, and nodeKey is the key of the
// programs of a node.
// The Makefile stamps them with -ldflags -X (see LinkerFlags); without them (tests, `go run`) the sources are searched for
// around the working directory.
var sourceKey, releaseKey, nodeKey string

// LinkerFlags stamp a binary so that it finds what Build made without the sources.
func LinkerFlags(sourceDir string) (string, error) {
	key, err := Key(sourceDir)
	if err != nil {
		return "", err
	}
	ofNode, err := sourcesKey(sourceDir, nodeRecipe, "")
	if err != nil {
		return "", err
	}
	pkg := reflect.TypeFor[release]().PkgPath()
	return fmt.Sprintf("-X %[1]s.sourceKey=%[2]s -X %[1]s.releaseKey=%[3]s -X %[1]s.nodeKey=%[4]s", pkg, key, ReleaseKey(sourceDir), ofNode), nil
}

// Names are the executables that a complete directory has.
func Names() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
}

// Options say where to search. The zero value searches the environment and the build cache.
type Options struct {
	// Dir is a directory given by hand; it wins, and it is an error when it is not complete.
	Dir string
	// SourceDir is the devcluster module's directory. Empty: found by walking up from the working directory.
	SourceDir string
	// Getenv reads the environment. Nil: os.Getenv.
	Getenv func(string) string
}

func (o Options) withDefaults() Options {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	return o
}

// Find returns the absolute path of a complete directory of executables: Options.Dir, else the one that $BULLPEN_ASSETS
// names (either one must be complete), else $KUBEBUILDER_ASSETS when complete, else one that Build made: compiled from
// the sources, or, unless $BULLPEN_ASSETS is "off", ready-made. When there is none the error is ErrMissing.
func Find(o Options) (string, error) {
	o = o.withDefaults()
	set, err := parseSetting(o.Getenv(EnvAssets))
	if err != nil {
		return "", err
	}
	for _, given := range []struct{ from, dir string }{{"the assets directory", o.Dir}, {"$" + EnvAssets, set.dir}} {
		if given.dir == "" {
			continue
		}
		if lacks := missing(given.dir); len(lacks) > 0 {
			return "", fmt.Errorf("%w: %s (%s) lacks %s", ErrMissing, given.dir, given.from, strings.Join(lacks, ", "))
		}
		return filepath.Abs(given.dir)
	}
	if dir := o.Getenv(EnvKubebuilder); dir != "" && Complete(dir) {
		return filepath.Abs(dir)
	}
	dir, err := cachedDir(o, set.off)
	if err != nil {
		return "", fmt.Errorf("%w: %w; run `make devcluster` in the repository, or point $%s at a directory that has %s",
			ErrMissing, err, EnvAssets, strings.Join(Names(), ", "))
	}
	return dir, nil
}

// Complete reports whether dir has every executable of Names.
func Complete(dir string) bool { return len(missing(dir)) == 0 }

func missing(dir string) []string { return lacking(dir, Names()) }

// lacking are the names of which dir has no executable.
func lacking(dir string, names []string) []string {
	var lacks []string
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name)) // follows links: a dangling one is missing
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			lacks = append(lacks, name)
		}
	}
	return lacks
}

// cachedDir is a complete directory that Build made. The one compiled from exactly these sources comes first: after a change
// of the sources, it is what shows the change.
func cachedDir(o Options, off bool) (string, error) {
	compiled, released := sourceKey, releaseKey
	if compiled == "" || o.SourceDir != "" {
		source, err := resolveSource(o.SourceDir)
		if err != nil {
			return "", err
		}
		if compiled, err = Key(source); err != nil {
			return "", err
		}
		released = ReleaseKey(source)
	}
	dir, err := cacheDir(o.Getenv, compiled)
	if err != nil {
		return "", err
	}
	lacks := missing(dir)
	if len(lacks) == 0 {
		return dir, nil
	}
	if ready := filepath.Join(filepath.Dir(dir), released); !off && released != "" && Complete(ready) {
		return ready, nil
	}
	return "", fmt.Errorf("%s lacks %s", dir, strings.Join(lacks, ", "))
}

// cacheDir is where the build of one key lives.
func cacheDir(getenv func(string) string, key string) (string, error) {
	return cacheDirOf(getenv, "devcluster", key)
}

func cacheDirOf(getenv func(string) string, kind, key string) (string, error) {
	root := getenv(EnvCache)
	if root == "" {
		base := getenv("XDG_CACHE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("finding the cache directory: %w (set $%s)", err, EnvCache)
			}
			base = filepath.Join(home, ".cache")
		}
		root = filepath.Join(base, "bullpen")
	}
	return filepath.Abs(filepath.Join(root, kind, key))
}

func resolveSource(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the devcluster sources: %w", err)
	}
	for {
		candidate := filepath.Join(at, "devcluster")
		if isDevclusterModule(candidate) {
			return candidate, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("the devcluster sources are not in this directory or above it")
		}
		at = up
	}
}

func isDevclusterModule(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(data), "module github.com/bullpen-ci/bullpen/devcluster\n")
}
