package assets

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pinned is what the go.mod of sources asks for.
var pinned = release{kubernetes: "v1.99.7", etcd: "v3.99.1", goos: "linux", goarch: runtime.GOARCH}

// Paths of the two sites.
var (
	atKubernetes = "/v1.99.7/bin/linux/" + runtime.GOARCH + "/"
	atEtcd       = "/etcd-io/etcd/releases/download/v3.99.1/"
	etcdTop      = "etcd-v3.99.1-linux-" + runtime.GOARCH
)

// program is a script that prints what the pinned program prints, and is long enough to be truncated.
func program(name string) []byte {
	return []byte("#!/bin/sh\necho '" + pinned.versionLine(name) + "'\n#" + strings.Repeat("x", 10_000) + "\n")
}

// publisher serves the paths of both sites, as a mirror does.
type publisher struct {
	*httptest.Server

	mu      sync.Mutex
	files   map[string][]byte
	instead map[string]http.HandlerFunc // what handles requests for a path in place of the file
	asked   []*http.Request
}

func publisherOf(t *testing.T) *publisher {
	t.Helper()
	p := &publisher{files: map[string][]byte{}, instead: map[string]http.HandlerFunc{}}
	for _, name := range Names()[1:] {
		p.files[atKubernetes+name] = program(name)
		p.files[atKubernetes+name+".sha256"] = sumOf(program(name))
	}
	p.publishEtcd(t, etcdTop+"/etcd")
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) publishEtcd(t *testing.T, member string) {
	t.Helper()
	packed := archive(t, etcdTop+"/README.md", member)
	p.files[atEtcd+etcdTop+".tar.gz"] = packed
	p.files[atEtcd+"SHA256SUMS"] = []byte(string(sumOf([]byte("other"))) + "  etcd-v3.99.1-windows-amd64.zip\n" +
		string(sumOf(packed)) + "  " + etcdTop + ".tar.gz\n")
}

func sumOf(data []byte) []byte { return fmt.Appendf(nil, "%x", sha256.Sum256(data)) }

// archive holds the program etcd under each name.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	entries := tar.NewWriter(zipped)
	for _, name := range names {
		data := program("etcd")
		require.NoError(t, entries.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}))
		_, err := entries.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, entries.Close())
	require.NoError(t, zipped.Close())
	return packed.Bytes()
}

func (p *publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r)
	data, ok := p.files[r.URL.Path]
	handle := p.instead[r.URL.Path]
	p.mu.Unlock()
	switch {
	case handle != nil:
		handle(w, r)
	case ok:
		w.Header().Set("ETag", `"`+string(sumOf(data))+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	default:
		http.NotFound(w, r)
	}
}

func (p *publisher) handle(path string, handle http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instead[path] = handle
}

// partly sends the first 5,000 bytes of a file, and then does what the end says.
func (p *publisher) partly(path string, end func(*http.Request)) {
	p.handle(path, func(w http.ResponseWriter, r *http.Request) {
		data := p.files[path]
		w.Header().Set("ETag", `"`+string(sumOf(data))+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:5000])
		w.(http.Flusher).Flush()
		end(r)
	})
}

func hang(r *http.Request) { <-r.Context().Done() }

// requests are those for a path, or all if it is empty.
func (p *publisher) requests(path string) []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*http.Request
	for _, r := range p.asked {
		if path == "" || r.URL.Path == path {
			found = append(found, r)
		}
	}
	return found
}

// trial is a Build whose compiler is a stand-in, with an empty cache.
type trial struct {
	BuildOptions
	compiled atomic.Int32
	log      bytes.Buffer
	cache    string // the directory of both sets
}

func newTrial(t *testing.T, mirror string) *trial {
	t.Helper()
	env := environment(t, map[string]string{EnvAssets: mirror})
	tr := &trial{cache: filepath.Join(env(EnvCache), "devcluster")}
	tr.BuildOptions = BuildOptions{
		Options: Options{SourceDir: sources(t), Getenv: env}, Log: &tr.log, Command: compiler(&tr.compiled, compiles),
		versions: time.Minute, connect: time.Minute, stall: time.Minute, goos: "linux",
	}
	return tr
}

func (tr *trial) build(t *testing.T) (string, error) { return Build(t.Context(), tr.BuildOptions) }

func (tr *trial) ready() string { return filepath.Join(tr.cache, pinned.key()) }

func (tr *trial) requireReady(t *testing.T, dir string) {
	t.Helper()
	require.Equal(t, tr.ready(), dir)
	require.Zero(t, tr.compiled.Load(), tr.log.String())
	for _, name := range Names() {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, program(name), data)
	}
	require.True(t, Complete(dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, len(Names()))
	require.Empty(t, tr.parts(t))
}

// parts are the files that wait to be resumed, with their sizes.
func (tr *trial) parts(t *testing.T) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	require.NoError(t, filepath.WalkDir(tr.cache, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".part") {
			info, err := entry.Info()
			if err != nil {
				return err
			}
			found[filepath.Base(path)] = info.Size()
		}
		return err
	}))
	return found
}

// onPath puts programs before those of the machine.
func onPath(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return dir
}
