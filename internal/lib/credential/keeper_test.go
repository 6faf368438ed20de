package credential

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// mount is a volume as a kubelet keeps it: files are links to ..data/NAME, and ..data is a link to a directory that is
// never changed. A new state is a new directory, and one rename of ..data.
type mount struct {
	t   *testing.T
	dir string
	n   int
}

func newMount(t *testing.T) *mount { return &mount{t: t, dir: t.TempDir()} }

func (m *mount) file(name string) string { return filepath.Join(m.dir, name) }

// swap replaces the volume's files.
func (m *mount) swap(files map[string]string) {
	m.t.Helper()
	m.n++
	dir := strings.Repeat("x", m.n)
	require.NoError(m.t, os.Mkdir(filepath.Join(m.dir, ".."+dir), 0o700))
	for name, content := range files {
		require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, ".."+dir, name), []byte(content), 0o400))
	}
	old, _ := os.Readlink(m.file("..data"))
	require.NoError(m.t, os.Symlink(".."+dir, m.file("..data_tmp")))
	require.NoError(m.t, os.Rename(m.file("..data_tmp"), m.file("..data")))
	for name := range files {
		if _, err := os.Lstat(m.file(name)); err != nil {
			require.NoError(m.t, os.Symlink(filepath.Join("..data", name), m.file(name)))
		}
	}
	if old != "" {
		require.NoError(m.t, os.RemoveAll(m.file(old)))
	}
}

// user is who uses a credential: it takes anything but what begins with "broken".
type user struct {
	text  atomic.Pointer[string]
	calls int
}

var errBroken = errors.New("it is broken")

func (u *user) use(_ context.Context, contents [][]byte) error {
	u.calls++
	if bytes.HasPrefix(contents[0], []byte("broken")) {
		return errBroken
	}
	text := string(bytes.Join(contents, []byte("|")))
	u.text.Store(&text)
	return nil
}

func (u *user) using() string { return *u.text.Load() }

type fixture struct {
	*Keeper
	mount    *mount
	user     user
	now      time.Time
	log      bytes.Buffer
	registry *prometheus.Registry
}

// begun is when a fixture was started.
var begun = time.Unix(1_800_000_000, 0)

func newFixture(t *testing.T, files map[string]string, watched ...File) *fixture {
	t.Helper()
	f := &fixture{mount: newMount(t), now: begun, registry: prometheus.NewRegistry()}
	f.mount.swap(files)
	for i := range watched {
		watched[i].Path = f.mount.file(watched[i].Path)
	}
	keeper, err := New(Options{
		Sources: []Source{{Name: "key", Files: watched, Use: f.user.use}}, Every: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&f.log, nil)), Metrics: f.registry, Now: func() time.Time { return f.now },
	})
	require.NoError(t, err)
	require.NoError(t, keeper.Start(t.Context()))
	f.Keeper = keeper
	return f
}

func (f *fixture) look(t *testing.T) { t.Helper(); f.Look(t.Context()) }

// metrics are what is exported of the credential.
func (f *fixture) metrics(t *testing.T, refused float64, since time.Time) {
	t.Helper()
	families, err := f.registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		require.Len(t, family.GetMetric(), 1)
		require.Equal(t, "key", family.GetMetric()[0].GetLabel()[0].GetValue())
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	require.Equal(t, map[string]float64{
		"bullpen_credential_refused": refused, "bullpen_credential_used_since_timestamp_seconds": float64(since.Unix()),
	}, got)
}

func (f *fixture) logged() int { return strings.Count(f.log.String(), "\n") }

func TestLook_TakesWhatAKubeletSwaps(t *testing.T) {
	f := newFixture(t, map[string]string{"a": "one"}, File{Path: "a"})
	require.Equal(t, "one", f.user.using())
	f.look(t)
	require.Equal(t, 1, f.user.calls, "what has not changed is left alone")

	f.now = f.now.Add(time.Hour)
	f.mount.swap(map[string]string{"a": "two"})
	f.look(t)
	require.Equal(t, "two", f.user.using())
	f.metrics(t, 0, begun.Add(time.Hour))
	require.Equal(t, 1, f.logged(), f.log.String())
	require.NotContains(t, f.log.String(), "two", "a secret is not logged")
}

// Most people write into the file itself, or rename another over it.
func TestLook_TakesWhatIsWrittenOver(t *testing.T) {
	f := newFixture(t, map[string]string{"a": "one"}, File{Path: "a"})
	other := f.mount.file("other")
	require.NoError(t, os.WriteFile(other, []byte("two"), 0o600))
	require.NoError(t, os.Rename(other, f.mount.file("a")))
	f.look(t)
	require.Equal(t, "two", f.user.using())
	require.NoError(t, os.WriteFile(f.mount.file("a"), []byte("six"), 0o600)) // as long as before
	f.look(t)
	require.Equal(t, "six", f.user.using())
}

func TestLook_ABrokenOneKeepsTheOneBeforeAndSaysSoOnce(t *testing.T) {
	f := newFixture(t, map[string]string{"a": "one"}, File{Path: "a"})
	f.mount.swap(map[string]string{"a": "broken: hunter2"})
	for range 3 {
		f.look(t)
	}
	require.Equal(t, "one", f.user.using())
	require.Equal(t, 2, f.user.calls, "what was refused is not tried all the time")
	require.Equal(t, 1, f.logged(), f.log.String())
	require.Contains(t, f.log.String(), errBroken.Error())
	require.NotContains(t, f.log.String(), "hunter2")
	f.metrics(t, 1, begun)

	f.now = f.now.Add(retryRefused) // the reason may have been elsewhere
	f.look(t)
	require.Equal(t, 3, f.user.calls)
	require.Equal(t, 1, f.logged(), f.log.String())

	f.mount.swap(map[string]string{"a": "broken differently"})
	f.look(t)
	require.Equal(t, 2, f.logged(), "another change is another line")

	f.mount.swap(map[string]string{"a": "three"})
	f.look(t)
	require.Equal(t, "three", f.user.using())
	f.metrics(t, 0, begun.Add(retryRefused))
}

func TestLook_BackToWhatIsInUseIsNoChange(t *testing.T) {
	f := newFixture(t, map[string]string{"a": "one"}, File{Path: "a"})
	f.mount.swap(map[string]string{"a": "broken"})
	f.look(t)
	f.mount.swap(map[string]string{"a": "one"})
	f.look(t)
	require.Equal(t, 2, f.user.calls)
	f.metrics(t, 0, begun)
	require.Contains(t, f.log.String(), "again")
}

func TestLook_FilesThatAreGoneKeepTheOneBefore(t *testing.T) {
	f := newFixture(t, map[string]string{"a": "one"}, File{Path: "a"})
	f.mount.swap(map[string]string{})
	f.look(t)
	f.look(t)
	require.Equal(t, "one", f.user.using())
	require.Equal(t, 1, f.logged(), f.log.String())
	f.metrics(t, 1, begun)
	f.mount.swap(map[string]string{"a": "two"})
	f.look(t)
	require.Equal(t, "two", f.user.using())
	f.metrics(t, 0, begun)
}

// A file that is empty is not one that is missing, and what lies in one is not what lies in the other.
func TestLook_OptionalFilesComeAndGo(t *testing.T) {
	f := newFixture(t, map[string]string{"a": "one"}, File{Path: "a"}, File{Path: "b", Optional: true})
	require.Equal(t, "one|", f.user.using())
	f.mount.swap(map[string]string{"a": "two", "b": "one"})
	f.look(t)
	require.Equal(t, "two|one", f.user.using())
	f.mount.swap(map[string]string{"a": "two"})
	f.look(t)
	require.Equal(t, "two|", f.user.using())
	calls := f.user.calls
	f.mount.swap(map[string]string{"a": "two", "b": ""})
	f.look(t)
	require.Equal(t, calls+1, f.user.calls)
	f.mount.swap(map[string]string{"a": "tw", "b": "o"})
	f.look(t)
	require.Equal(t, "tw|o", f.user.using())
}

// A read while files are swapped sees all of the old state or all of the new one.
func TestRead_NeverTakesHalfOfASwap(t *testing.T) {
	m := newMount(t)
	m.swap(map[string]string{"a": "0", "b": "0"})
	files := []File{{Path: m.file("a")}, {Path: m.file("b"), Optional: true}}
	stop, swapped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapped)
		for n := 0; ; n++ { // no content is used twice: half of one swap and half of another would look like no swap at all
			select {
			case <-stop:
				return
			default:
				text := strconv.Itoa(n)
				dir := filepath.Join(m.dir, "..s"+text)
				_ = os.Mkdir(dir, 0o700)
				_ = os.WriteFile(filepath.Join(dir, "a"), []byte(text), 0o600)
				_ = os.WriteFile(filepath.Join(dir, "b"), []byte(text), 0o600)
				_ = os.Symlink("..s"+text, m.file("..tmp"))
				_ = os.Rename(m.file("..tmp"), m.file("..data"))
				_ = os.RemoveAll(filepath.Join(m.dir, "..s"+strconv.Itoa(n-1)))
			}
		}
	}()
	t.Cleanup(func() { close(stop); await.Receive(t, swapped, "the goroutine that swaps files ends") })
	whole := 0
	for range 2000 {
		contents, _, err := read(files)
		if err != nil {
			continue // it says that it could not
		}
		if len(contents[0]) > 0 && len(contents[1]) > 0 { // a file that is being written is not a kubelet's
			require.Equal(t, string(contents[0]), string(contents[1]))
			whole++
		}
	}
	require.NotZero(t, whole)
}

func TestStart_RefusesWhatCannotBeUsed(t *testing.T) {
	m := newMount(t)
	m.swap(map[string]string{"a": "broken: hunter2"})
	var u user
	keeper, err := New(Options{Sources: []Source{{Name: "key", Files: []File{{Path: m.file("a")}}, Use: u.use}}})
	require.NoError(t, err)
	err = keeper.Start(t.Context())
	require.ErrorIs(t, err, errBroken)
	require.ErrorContains(t, err, "key")
	require.NotContains(t, err.Error(), "hunter2")
	keeper.Look(t.Context())
	require.Equal(t, 1, u.calls, "nothing is kept that was never begun")

	m.swap(map[string]string{})
	require.ErrorIs(t, keeper.Start(t.Context()), os.ErrNotExist)
	m.swap(map[string]string{"a": strings.Repeat("x", maxSize+1)})
	require.ErrorContains(t, keeper.Start(t.Context()), "larger")
	_, err = New(Options{Sources: []Source{{Name: "key"}}})
	require.Error(t, err)
}

func TestRun_LooksUntilItIsStopped(t *testing.T) {
	f := newFixture(t, map[string]string{"a": "one"}, File{Path: "a"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx) }()
	f.mount.swap(map[string]string{"a": "two"})
	require.Eventually(t, func() bool { return f.user.using() == "two" }, 10*time.Second, time.Millisecond)
	cancel()
	await.Receive(t, ended, "the keeper stops")
}
