//go:build unix

package tart

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const testDigest = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// later is a clock at which no pod is about to use an image that was fetched.
func later(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Hour) } }

func (m mac) images(s *Sandbox) []string {
	m.t.Helper()
	list, err := s.tart.List(m.t.Context())
	require.NoError(m.t, err)
	var names []string
	for _, vm := range list {
		if vm.Image {
			names = append(names, vm.Name)
		}
	}
	return names
}

// An image of 25 to 100 GB whose base is gone, or never was, would be on the disk for good.
func TestImages_AreRemovedWithoutABase(t *testing.T) {
	t.Parallel()
	repository := strings.TrimSuffix(testImage, testImage[strings.LastIndexByte(testImage, ':'):])
	for name, leave := range map[string]func(m mac) *Sandbox{
		"its base was suspect": func(m mac) *Sandbox {
			s := m.open(later)
			pod := m.start(s, "exit 0")
			m.wait(s, pod)
			require.NoError(m.t, s.Remove(m.t.Context(), string(pod.UID)))
			all, err := s.goldens()
			require.NoError(m.t, err)
			require.NoError(m.t, s.dropGolden(all[0]))
			return s
		},
		"the agent was killed after the pull": func(m mac) *Sandbox {
			uid := uuid.NewString()
			require.Error(m.t, exec.CommandContext(await.Context(m.t), os.Args[0], "agent-killed-at", "pulled", programs, m.dir, uid, runs).Run())
			s := m.open(later)
			require.NoError(m.t, s.Remove(m.t.Context(), uid))
			return s
		},
		"its mark could not be written": func(m mac) *Sandbox {
			s := m.open(later)
			require.NoError(m.t, os.Mkdir(s.fetchedFile(repository+"@"+testDigest), 0o700))
			_, err := s.pull(m.t.Context(), "uid", testImage, corev1.PullIfNotPresent)
			require.NoError(m.t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			m.script(tart.Script{Images: map[string]tart.Image{testImage: {Digest: testDigest}}})
			s := leave(m)
			require.Len(t, m.images(s), 2, "by tag and by digest")
			freed, err := s.CollectImages(t.Context(), 1)
			require.NoError(t, err)
			require.Positive(t, freed)
			require.Empty(t, m.images(s))
			s.endFetches(t.Context())
			for _, dir := range []string{s.fetchingDir(), s.fetchedDir()} {
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Empty(t, left)
			}
		})
	}
}

// A pull that only adds a name to an image that a person has pulled does not make the image ours.
func TestImages_NODE7_AnotherTagOfWhatWasThere(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	theirs := testImage + "-theirs"
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {Digest: testDigest}, theirs: {Digest: testDigest}}})
	m.tart("pull", theirs)
	s := m.open(later)
	_, err := s.pull(t.Context(), "uid", testImage, corev1.PullIfNotPresent)
	require.NoError(t, err)
	_, err = s.CollectImages(t.Context(), 1<<60)
	require.NoError(t, err)
	require.Contains(t, m.images(s), theirs)
	require.Empty(t, m.calls("delete"))
}

// Tart names a digest that it has never pulled. Without a pull of its own the image would arrive in the time of a clone, without a mark.
func TestImages_ByDigestArePulledAndMarked(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	image := testImage[:strings.LastIndexByte(testImage, ':')] + "@" + testDigest
	s := m.open()
	pod, c := m.newPod("exit 0")
	c.Image, pod.Spec.Containers[0].Image = image, image
	require.NoError(t, m.tryStart(t.Context(), s, pod, c))
	require.Equal(t, [][]string{{"pull", image}}, m.calls("pull"))
	require.Contains(t, s.fetched(), image)
	m.wait(s, pod)
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// The pull of an administrator, after ours has failed, does not make the image ours.
func TestImages_NODE7_PulledByAPersonAfterOursFailed(t *testing.T) {
	t.Parallel()
	for name, image := range map[string]string{
		"tag": testImage, "digest": testImage[:strings.LastIndexByte(testImage, ':')] + "@" + testDigest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			s := m.open(later)
			m.script(tart.Script{Rules: []tart.Rule{{Command: "pull", Effect: tart.EffectAnswer, Message: "network"}}})
			_, err := s.pull(t.Context(), "uid", image, corev1.PullIfNotPresent)
			require.ErrorContains(t, err, "pulling "+image)
			require.Empty(t, s.fetched())
			m.script(tart.Script{Images: map[string]tart.Image{testImage: {Digest: testDigest}}})
			m.tart("pull", image)
			theirs := m.images(s)
			_, err = s.CollectImages(t.Context(), 1<<60)
			require.NoError(t, err)
			require.NotEmpty(t, theirs)
			require.Equal(t, theirs, m.images(s))
		})
	}
}

// A pull may take hours: the host's periodic look does not wait for it, nor for a start.
func TestImages_SweepAndCollectionSkipLocks(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {Digest: testDigest}}})
	s := m.open(later)
	named, err := s.pull(t.Context(), "uid", testImage, corev1.PullIfNotPresent)
	require.NoError(t, err)
	require.NoError(t, writeJSON(s.fetchingFile(testImage), fetch{Image: testImage}))
	for _, key := range []string{testImage, testDigest} {
		unlock, free := s.images.tryLock(key)
		require.True(t, free)
		_, free = s.images.tryLock(key)
		require.False(t, free)
		defer unlock()
	}
	await.Return(t, func() { s.sweep(t.Context()) }, "the sweep returns")
	require.FileExists(t, s.fetchingFile(testImage))
	_, err = s.CollectImages(await.Context(t), 1<<60)
	require.NoError(t, err)
	require.Contains(t, m.images(s), named)
}

// Cloning an image that was deleted since its pull would pull it, without a mark.
func TestImages_DeletedAfterTheirPullArePulledAgain(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {Digest: testDigest}}})
	s := m.open()
	image := testImage[:strings.LastIndexByte(testImage, ':')] + "@" + testDigest
	err := s.cloneGolden(t.Context(), record{PodRef: sandbox.PodRef{UID: "uid"}, VM: m.vm("uid"), Digest: testDigest}, image)
	require.ErrorContains(t, err, "deleted after its pull")
	require.Empty(t, m.calls("clone"))
	pod := m.start(s, "exit 0")
	m.wait(s, pod)
	require.Len(t, m.calls("pull"), 1)
}

// A collection takes minutes, in which a pod may have begun to use an image that was unused at its beginning.
func TestImages_CollectionAsksAgainWhetherAPodUsesThem(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {Digest: testDigest}}})
	s := m.open(later)
	m.start(s, runs)
	bases, err := s.goldens()
	require.NoError(t, err)
	require.Len(t, bases, 1)
	freed, err := s.collect(t.Context(), bases[0], nil)
	require.NoError(t, err)
	require.Zero(t, freed)
	_, err = s.collectImage(t.Context(), bases[0].Image, nil)
	require.NoError(t, err)
	require.True(t, s.goldenWhole(testDigest))
	require.Contains(t, m.images(s), bases[0].Image)
	require.Empty(t, m.calls("delete"))
}

// The pod that asked for an image names it a moment after it has arrived.
func TestBaseless_KeepsWhatIsUsedOrNew(t *testing.T) {
	now := time.Now()
	fetched := map[string]time.Time{}
	for digest, age := range map[string]time.Duration{"used": time.Hour, "based": time.Hour, "new": time.Minute, "b": time.Hour, "a": startTime} {
		fetched["host/path@"+digest] = now.Add(-age)
	}
	require.Equal(t, []string{"host/path@a", "host/path@b"},
		baseless(fetched, []golden{{Digest: "based"}}, map[string]bool{"used": true, "b": false}, now))
}
