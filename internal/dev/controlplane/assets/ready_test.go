package assets

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets/download"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestBuild_DownloadsFromAMirrorOnce(t *testing.T) {
	p := publisherOf(t)
	tr := newTrial(t, p.URL)
	dir, err := tr.build(t)
	require.NoError(t, err)
	tr.requireReady(t, dir)
	require.Contains(t, tr.log.String(), "downloading Kubernetes v1.99.7 and etcd v3.99.1 for linux/")
	require.Contains(t, tr.log.String(), "devcluster: 1 of 5, etcd: 100% of")

	asked := len(p.requests(""))
	again, err := tr.build(t)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.Len(t, p.requests(""), asked, "the cache has them")
	if runtime.GOOS == "linux" {
		found, err := Find(tr.Options)
		require.NoError(t, err)
		require.Equal(t, dir, found)
		stamp(t, tr.SourceDir)
		t.Chdir(t.TempDir())
		found, err = Find(Options{Getenv: tr.Getenv})
		require.NoError(t, err)
		require.Equal(t, dir, found, "an installed bullpen up finds them without the sources")
	}
}

// siteTransport sends requests for the real sites to a local server.
type siteTransport struct {
	to    *publisher
	mu    sync.Mutex
	asked map[string]bool
}

func (s *siteTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked[r.URL.Scheme+"://"+r.URL.Host] = true
	s.mu.Unlock()
	local, err := url.Parse(s.to.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = local.Scheme, local.Host
	return http.DefaultTransport.RoundTrip(r)
}

func TestBuild_DownloadsFromThePublishersWithoutAMirror(t *testing.T) {
	transport := &siteTransport{to: publisherOf(t), asked: map[string]bool{}}
	tr := newTrial(t, "")
	tr.Transport = transport
	dir, err := tr.build(t)
	require.NoError(t, err)
	tr.requireReady(t, dir)
	require.Equal(t, map[string]bool{"https://dl.k8s.io": true, "https://github.com": true}, transport.asked)
}

func TestRelease_OfThisRepositoryIsPublished(t *testing.T) {
	r, err := readRelease(filepath.Join("..", "..", "..", "..", "devcluster"), "linux", "amd64")
	require.NoError(t, err)
	require.Equal(t, "https://dl.k8s.io/"+r.kubernetes+"/bin/linux/amd64/kube-scheduler", r.artifact("kube-scheduler", nil).url)
	require.Equal(t, "https://dl.k8s.io/"+r.kubernetes+"/bin/linux/amd64/kube-scheduler.sha256", r.artifact("kube-scheduler", nil).sums)
	require.Equal(t, "https://github.com/etcd-io/etcd/releases/download/"+r.etcd+"/etcd-"+r.etcd+"-linux-amd64.tar.gz", r.artifact("etcd", nil).url)
	require.Equal(t, "https://github.com/etcd-io/etcd/releases/download/"+r.etcd+"/SHA256SUMS", r.artifact("etcd", nil).sums)
	mirror, err := url.Parse("http://mirror.example/below/")
	require.NoError(t, err)
	require.Equal(t, "http://mirror.example/below/"+r.kubernetes+"/bin/linux/amd64/kubectl", r.artifact("kubectl", mirror).url)
	require.Equal(t, "http://mirror.example/below/etcd-io/etcd/releases/download/"+r.etcd+"/SHA256SUMS", r.artifact("etcd", mirror).sums)
}

// failure is a download that fails, its error, and what is kept to resume.
type failure struct {
	prepare func(*testing.T, *publisher, *trial)
	says    string
	parts   map[string]int64
}

func failures() map[string]failure {
	scheduler := atKubernetes + "kube-scheduler"
	return map[string]failure{
		"no such release": {
			func(_ *testing.T, p *publisher, _ *trial) { p.handle(scheduler+".sha256", http.NotFound) },
			`cannot download http://\S+/kube-scheduler\.sha256: the server responded with status 404 \(Not Found\)`, nil,
		},
		"no such program": {
			func(_ *testing.T, p *publisher, _ *trial) { p.handle(scheduler, http.NotFound) },
			`cannot download http://\S+/kube-scheduler: the server responded with status 404`, nil,
		},
		"checksums that hang": {
			func(_ *testing.T, p *publisher, tr *trial) {
				p.handle(scheduler+".sha256", func(_ http.ResponseWriter, r *http.Request) { hang(r) })
				tr.connect = 200 * time.Millisecond
			},
			`cannot download http://\S+/kube-scheduler\.sha256: no response within 200ms`, nil,
		},
		"a login page": {
			func(_ *testing.T, p *publisher, _ *trial) {
				p.handle(scheduler+".sha256", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>log in</html>")) })
			},
			`kube-scheduler\.sha256: not a checksum file`, nil,
		},
		"a connection that is refused": {
			func(_ *testing.T, p *publisher, _ *trial) { p.Close() }, `cannot download http://\S+: .*refused`, nil,
		},
		"a wrong checksum": {
			func(_ *testing.T, p *publisher, _ *trial) { p.files[scheduler] = []byte("another program") },
			`cannot download http://\S+/kube-scheduler: wrong checksum: SHA-256 is [0-9a-f]{64}, but [0-9a-f]{64} is published`, nil,
		},
		"a file that is always truncated": {
			func(_ *testing.T, p *publisher, _ *trial) {
				p.partly(scheduler, func(*http.Request) { panic(http.ErrAbortHandler) })
			},
			`/kube-scheduler: the connection broke`, map[string]int64{"kube-scheduler.part": 5000},
		},
		"a file that stalls": {
			func(_ *testing.T, p *publisher, tr *trial) {
				p.partly(scheduler, hang)
				tr.stall = 300 * time.Millisecond
			},
			`/kube-scheduler: the download stalled: no data for 300ms`, map[string]int64{"kube-scheduler.part": 5000},
		},
		"an archive without etcd": {
			func(t *testing.T, p *publisher, _ *trial) { p.publishEtcd(t, "etcd") }, `unpacking \S+/etcd from`, nil,
		},
		"a platform without programs": {
			func(_ *testing.T, _ *publisher, tr *trial) { tr.goos = "darwin" },
			`cannot use ready-made programs: kube-apiserver is published for Linux only`, nil,
		},
		"a commit between two releases": {
			func(t *testing.T, _ *publisher, tr *trial) {
				write(t, tr.SourceDir, "go.mod", "module github.com/bullpen-ci/bullpen/devcluster\n\nrequire k8s.io/kubernetes v1.99.8-0.20261101000000-abcdefabcdef\n")
			},
			`cannot use ready-made programs: .*which is not a release`, nil,
		},
	}
}

func TestBuild_CompilesWhenTheDownloadFails(t *testing.T) {
	for name, test := range failures() {
		t.Run(name, func(t *testing.T) {
			p := publisherOf(t)
			tr := newTrial(t, p.URL)
			test.prepare(t, p, tr)
			dir, err := tr.build(t)
			require.NoError(t, err)
			require.True(t, Complete(dir))
			require.NotEqual(t, tr.ready(), dir)
			require.EqualValues(t, 1, tr.compiled.Load())
			require.Regexp(t, `(?m)^devcluster: `+`.*`+test.says+`.*; compiling instead \(about five minutes\)\.$`, tr.log.String())
			if test.parts == nil {
				test.parts = map[string]int64{}
			}
			require.Equal(t, test.parts, tr.parts(t))
			require.NoDirExists(t, tr.ready())
		})
	}
}

// A machine without internet is one whose names, connections or handshakes hang: all of them end with the context.
func TestBuild_NoticesWithinItsBoundThatNothingCanBeReached(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts, and no handshake of TLS ends
	require.NoError(t, err)
	defer silent.Close()
	for name, test := range map[string]struct {
		mirror    string
		transport http.RoundTripper
	}{
		"TLS": {"https://" + silent.Addr().String(), nil},
		"DNS or TCP": {"https://mirror.invalid", &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, test.mirror)
			tr.Transport, tr.connect = test.transport, 300*time.Millisecond
			began := time.Now()
			_, err := tr.build(t)
			require.NoError(t, err)
			require.Less(t, time.Since(began), 15*time.Second)
			require.EqualValues(t, 1, tr.compiled.Load())
			require.Contains(t, tr.log.String(), "no response within 300ms; compiling instead")
		})
	}
	defaults := BuildOptions{}.withDefaults()
	require.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second, 15 * time.Second}, []time.Duration{defaults.versions, defaults.connect, defaults.stall})
}

func TestBuild_ResumesWhatAnEarlierRunLeft(t *testing.T) {
	p := publisherOf(t)
	scheduler := atKubernetes + "kube-scheduler"
	p.partly(scheduler, hang)
	tr := newTrial(t, p.URL)
	tr.stall = 300 * time.Millisecond
	tr.Command = compiler(&tr.compiled, "exit 3")
	_, err := tr.build(t)
	require.ErrorContains(t, err, "compiling the development cluster")
	require.Equal(t, map[string]int64{"kube-scheduler.part": 5000}, tr.parts(t))
	tr.compiled.Store(0)

	p.handle(scheduler, nil)
	dir, err := tr.build(t)
	require.NoError(t, err)
	tr.requireReady(t, dir)
	asked := p.requests(scheduler)
	require.Equal(t, "bytes=5000-", asked[len(asked)-1].Header.Get("Range"))
	require.Len(t, p.requests(atKubernetes+"kube-apiserver"), 1, "it was complete")
}

func TestBuild_RemovesUnfinishedDownloadsOfOtherVersions(t *testing.T) {
	tr := newTrial(t, publisherOf(t).URL)
	write(t, tr.cache, ".download-kubernetes-v1.98.0-etcd-v3.98.0-linux-amd64/kubectl.part", "part")
	dir, err := tr.build(t)
	require.NoError(t, err)
	tr.requireReady(t, dir)
}

func TestBuild_ACanceledDownloadIsNotFollowedByACompilation(t *testing.T) {
	p := publisherOf(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.partly(atKubernetes+"kube-scheduler", func(r *http.Request) { cancel(); hang(r) })
	tr := newTrial(t, p.URL)
	tr.stall = 10 * time.Minute
	_, err := Build(ctx, tr.BuildOptions)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, tr.compiled.Load())
	require.NotContains(t, tr.log.String(), "compiling")
}

func TestBuild_OffCompilesWhateverIsReady(t *testing.T) {
	p := publisherOf(t)
	tr := newTrial(t, p.URL)
	ready, err := tr.build(t)
	require.NoError(t, err)
	onPath(t, map[string]string{"kubectl": "#!/bin/sh\necho asked >>" + filepath.Join(tr.cache, "ran") + "\n"})
	asked := len(p.requests(""))
	off := func(name string) string {
		if name == EnvAssets {
			return Off
		}
		return tr.Getenv(name)
	}

	_, err = Find(Options{SourceDir: tr.SourceDir, Getenv: off})
	require.ErrorIs(t, err, ErrMissing)
	o := tr.BuildOptions
	o.Getenv = off
	dir, err := Build(t.Context(), o)
	require.NoError(t, err)
	require.NotEqual(t, ready, dir)
	require.EqualValues(t, 1, tr.compiled.Load())
	require.Len(t, p.requests(""), asked)
	require.NoFileExists(t, filepath.Join(tr.cache, "ran"))

	found, err := Find(tr.Options)
	require.NoError(t, err)
	require.Equal(t, dir, found, "what is compiled from exactly these sources comes first")
}

func TestBuild_RefusesAMirrorThatIsNone(t *testing.T) {
	for _, mirror := range []string{"http://", "https:///path", "https://mirror.example/?a=b", "http://me:secret@mirror.example/#x", "http://%zz"} {
		tr := newTrial(t, mirror)
		_, err := tr.build(t)
		require.ErrorContains(t, err, "$BULLPEN_ASSETS is not a valid URL", mirror)
		require.NotContains(t, err.Error(), "secret")
		_, err = Find(tr.Options)
		require.ErrorContains(t, err, "$BULLPEN_ASSETS is not a valid URL", mirror)
		require.Zero(t, tr.compiled.Load())
	}
}

func TestBuild_DownloadsOnceHoweverManyAsk(t *testing.T) {
	p := publisherOf(t)
	tr := newTrial(t, p.URL)
	var all sync.WaitGroup
	dirs, errs := make([]string, 4), make([]error, 4)
	o := tr.BuildOptions
	o.Log = nil
	for i := range dirs {
		all.Go(func() { dirs[i], errs[i] = Build(t.Context(), o) })
	}
	await.Return(t, all.Wait, "all builds return")
	require.NoError(t, errors.Join(errs...))
	for _, dir := range dirs {
		tr.requireReady(t, dir)
	}
	require.Len(t, p.requests(atKubernetes+"kube-apiserver"), 1)
}

func TestBuild_AWaitForAnotherProcessIsSaidAndEndsWithTheContext(t *testing.T) {
	tr := newTrial(t, Off)
	require.NoError(t, os.MkdirAll(tr.cache, 0o755))
	unlock, err := lock(t.Context(), filepath.Join(tr.cache, ".lock"), nil)
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tr.Log = writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "waiting for another process") {
			cancel()
		}
		return len(p), nil
	})
	_, err = Build(ctx, tr.BuildOptions)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, tr.compiled.Load())
}

func TestErrors_OfDownloadsHaveNoPassword(t *testing.T) {
	err := &fetchError{"https://me:secret@mirror.example/kubectl", download.ErrStalled}
	require.ErrorIs(t, err, download.ErrStalled)
	require.NotContains(t, err.Error(), "secret")
}
