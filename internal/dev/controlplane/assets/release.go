package assets

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets/download"
)

// release is what the devcluster's go.mod pins, on one platform. That file is the only place that names the versions.
type release struct {
	kubernetes, etcd string // with the leading v
	goos, goarch     string
}

var (
	requireKubernetes = regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes (v[0-9][^\s]*)`)
	requireEtcd       = regexp.MustCompile(`(?m)^\s*(?:require\s+)?go\.etcd\.io/etcd/server/v3 (v[0-9][^\s]*)`)
	publishedVersion  = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z]+\.\d+)?$`)
)

// readRelease reads the pinned versions. Commits between two releases have no published programs.
func readRelease(source, goos, goarch string) (release, error) {
	data, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return release{}, fmt.Errorf("reading the pinned versions: %w", err)
	}
	r := release{kubernetes: required(requireKubernetes, data), etcd: required(requireEtcd, data), goos: goos, goarch: goarch}
	for _, version := range []string{r.kubernetes, r.etcd} {
		if !publishedVersion.MatchString(version) {
			return release{}, fmt.Errorf("%s pins version %q, which is not a release", filepath.Join(source, "go.mod"), version)
		}
	}
	return r, nil
}

func required(require *regexp.Regexp, mod []byte) string {
	found := require.FindSubmatch(mod)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// key names the directory of this release in the cache.
func (r release) key() string {
	return fmt.Sprintf("kubernetes-%s-etcd-%s-%s-%s", r.kubernetes, r.etcd, r.goos, r.goarch)
}

// ReleaseKey names the directory of ready-made programs that the sources ask for. It is empty when they pin versions that
// are not releases.
func ReleaseKey(sourceDir string) string {
	r, err := readRelease(sourceDir, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return ""
	}
	return r.key()
}

// artifact is one published file.
type artifact struct {
	program   string
	url, sums string // of the file, and of its checksum
	archived  string // the program's path in the archive; empty if the file is the program itself
}

// artifact says where a program is published. A mirror has the paths of both sites.
func (r release) artifact(program string, mirror *url.URL) artifact {
	site := func(host string) *url.URL {
		if mirror != nil {
			return mirror
		}
		return &url.URL{Scheme: "https", Host: host}
	}
	if program == "etcd" {
		name := fmt.Sprintf("etcd-%s-%s-%s", r.etcd, r.goos, r.goarch)
		from := site("github.com").JoinPath("etcd-io/etcd/releases/download", r.etcd)
		return artifact{program: program, url: from.JoinPath(name + ".tar.gz").String(), sums: from.JoinPath("SHA256SUMS").String(), archived: name + "/etcd"}
	}
	at := site("dl.k8s.io").JoinPath(r.kubernetes, "bin", r.goos, r.goarch, program)
	return artifact{program: program, url: at.String(), sums: at.String() + ".sha256"}
}

// checksum finds the artifact's digest in the file that its site publishes.
func (a artifact) checksum(published []byte) (download.Checksum, error) {
	if a.archived == "" {
		return download.ParseChecksum(published)
	}
	return download.FindChecksum(published, a.url[strings.LastIndexByte(a.url, '/')+1:])
}
