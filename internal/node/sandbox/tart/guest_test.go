//go:build unix

package tart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// An image without Tart's guest agent is given up, unless it starts ours by itself.
func TestGuest_ThatIsNotReachedIsGivenUp(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {NoGuestAgent: true}}})
	s := m.open(func(o *Options) { o.StayUp, o.GuestPatience = 100*time.Millisecond, 2*time.Second })
	pod := m.start(s, runs)
	exit := m.wait(s, pod)
	require.True(t, exit.Unknown)
	require.Equal(t, "GuestUnreachable", exit.Reason)
	require.Contains(t, exit.Message, "Guest Agent")
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

func TestGuest_MayBeStartedByItsImage(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {
		NoGuestAgent: true, Boot: []string{"/bin/sh", "-c", `exec "$BULLPEN_GUEST_SHARES/bullpen/bullpen" agent guest --foreground`},
	}}})
	s := m.open()
	pod := m.start(s, "exit 6")
	require.Equal(t, int32(6), m.wait(s, pod).Code)
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// EXCL-1, NODE-3: a guest that no longer reports may still run its job: the host's disk may be full, or the job may have killed our agent.
// Neither the agent that notices nor the one after it ends the machine, also when it should stop: its pod's grace period ends it.
func TestGuest_NODE3_SilenceAloneEndsNoMachine(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	reported := make(chan sandbox.News, 10)
	open := func() *Sandbox {
		s := m.open(func(o *Options) {
			o.GuestPatience, o.GuestSilence, o.LookEvery = time.Millisecond, 500*time.Millisecond, 20*time.Millisecond
		})
		s.TellNews(func(_ string, news sandbox.News) {
			if news.Reason == reasonSilent {
				reported <- news
			}
		})
		return s
	}
	first := m.open()
	pod := m.start(first, `cd "$BULLPEN_STATUS_DIR"; while [ ! -e go ]; do sleep 0.02; done; kill -9 $PPID; rm -f heartbeat; `+runs)
	uid := string(pod.UID)
	require.Eventually(t, func() bool { r, err := first.load(uid); return err == nil && r.Heard }, patience, 5*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(m.status(uid), "go"), nil, 0o600))
	require.Eventually(t, func() bool { return m.Settled(uid, "") && guestshare.Absent(m.status(uid), guestshare.FileHeartbeat) }, patience, 5*time.Millisecond)
	first.Close()

	s := open()
	state, err := s.Inspect(t.Context(), uid)
	require.NoError(t, err)
	require.Len(t, state.Containers, 1)
	ended := make(chan sandbox.Exit, 1)
	go func() {
		if exit, err := s.Wait(t.Context(), uid, runnerpod.ContainerRunner); err == nil {
			ended <- exit
		}
	}()
	select {
	case <-reported:
	case exit := <-ended:
		t.Fatalf("a machine with a job in it was ended: %+v", exit)
	case <-time.After(patience):
		t.Fatal("nobody was told of the silence")
	}
	require.True(t, m.Settled(uid, ""), "the job runs on")
	require.NotZero(t, m.holder(m.vm(uid)))

	require.NoError(t, s.Signal(t.Context(), uid, runnerpod.ContainerRunner, sandbox.Terminate))
	s.Close()
	s = open() // the next agent finds that the machine should stop
	go func() {
		if exit, err := s.Wait(t.Context(), uid, runnerpod.ContainerRunner); err == nil {
			ended <- exit
		}
	}()
	await.Receive(t, reported, "the silence is reported")
	require.True(t, m.Settled(uid, ""), "the job may run on for the pod's grace period")
	require.NotZero(t, m.holder(m.vm(uid)))
	r, err := s.load(uid)
	require.NoError(t, err)
	require.Empty(t, r.GaveUp)

	require.NoError(t, s.Signal(t.Context(), uid, runnerpod.ContainerRunner, sandbox.Kill))
	exit := await.Receive(t, ended, "the wait for the guest returns")
	require.Equal(t, int32(9), exit.Signal)
	require.NoError(t, s.Remove(t.Context(), uid))
}

// A job may write anything where its end is reported. The command runs on, and how it ends is reported by our agent.
func TestGuest_NODE3_AReportNobodyCanBelieveEndsNoMachine(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open(func(o *Options) { o.LookEvery = 10 * time.Millisecond })
	beats := `seen() { cat "$BULLPEN_STATUS_DIR/heartbeat"; }; next() { h=$(seen); while [ "$(seen)" = "$h" ]; do sleep 0.02; done; }; `
	pod := m.start(s, beats+`echo '{"code":0' > "$BULLPEN_STATUS_DIR/exit.json"; next; next; exit 5`)
	exit := m.wait(s, pod)
	require.Equal(t, int32(5), exit.Code, "%+v", exit)
	require.False(t, exit.Unknown)
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// A guest's writes to its share use the host's disk, where the other machine's disk is as well.
func TestGuest_TEN6_ThatFillsItsHostsDiskIsEnded(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	reported := make(chan sandbox.News, 10)
	s := m.open(func(o *Options) {
		o.MaxStatus, o.StatusEvery, o.LookEvery = 1<<20, 10*time.Millisecond, 10*time.Millisecond
	})
	s.TellNews(func(_ string, news sandbox.News) {
		if news.Reason == reasonShare {
			reported <- news
		}
	})
	honest := m.start(s, `head -c 500000 /dev/zero > "$BULLPEN_STATUS_DIR/log"; `+runs)
	require.Eventually(t, func() bool { return m.Settled(string(honest.UID), "") }, patience, 5*time.Millisecond)

	pod := m.start(s, `mkdir "$BULLPEN_STATUS_DIR/x"; head -c 2000000 /dev/zero > "$BULLPEN_STATUS_DIR/x/y"; `+runs)
	exit := m.wait(s, pod)
	require.True(t, exit.Unknown)
	require.Equal(t, reasonShare, exit.Reason)
	require.Contains(t, exit.Message, "more than 1 MiB")
	require.Equal(t, exit.Message, await.Receive(t, reported, "the pod gets an Event").Message)
	require.True(t, m.Settled(string(honest.UID), ""), "the other machine runs on")
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
	require.NoError(t, s.Remove(t.Context(), string(honest.UID)))
}

// A report that comes when its command is not waited for any more is removed; one that is waited for stays, however long that takes.
func TestGuest_TEN6_LateReportsAreRemoved(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open(func(o *Options) { o.StatusEvery, o.LookEvery = 10*time.Millisecond, 10*time.Millisecond })
	pod := m.start(s, runs)
	uid := string(pod.UID)
	require.Eventually(t, func() bool { return m.Settled(uid, "") }, patience, 5*time.Millisecond)
	waited := s.beginExec()
	report := func(id string) string { return filepath.Join(m.status(uid), guestshare.FileExec(id)) }
	require.NoError(t, os.WriteFile(report(waited), nil, 0o600))
	for range 3 {
		require.NoError(t, os.WriteFile(report("0123456789abcdef"), nil, 0o600))
		require.Eventually(t, func() bool { return guestshare.Absent(m.status(uid), guestshare.FileExec("0123456789abcdef")) }, patience, 5*time.Millisecond)
	}
	require.FileExists(t, report(waited))
	r, err := s.onRecord(uid)
	require.NoError(t, err)
	s.forgetExec(r, waited)
	require.NoFileExists(t, report(waited))
	code, err := s.Exec(t.Context(), uid, runnerpod.ContainerRunner, []string{"sh", "-c", "exit 3"}, sandbox.Streams{})
	require.NoError(t, err)
	require.Equal(t, 3, code)
	require.NoError(t, s.Remove(t.Context(), uid))
}

// NET-3: no token enters the guest; the configuration is removed once it was taken, and the guest finds all of its places.
func TestGuest_NET3_GetsItsPlacesAndNoMore(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	script := `test "$BULLPEN_SHARED_DIR" = "${BULLPEN_STATUS_DIR%/status}/shared" || exit 10
test "$GREETING" = hello || exit 11
test "$(cat "$BULLPEN_SHARED_DIR/jitconfig")" = secret || exit 12
test "$PWD" = "${BULLPEN_STATUS_DIR%/status}/volumes/` + runnerpod.VolumeWork + `" || exit 13
test -z "$BULLPEN_TOKEN_FILE" || exit 14
: > "$BULLPEN_STATUS_DIR/jitconfig.taken"
while test -e "$BULLPEN_SHARED_DIR/jitconfig"; do sleep 0.01; done
if touch "$BULLPEN_SHARED_DIR/x" 2>/dev/null; then exit 15; fi`
	pod, c := m.newPod(script)
	require.NoError(t, s.Prepare(t.Context(), pod))
	require.NoError(t, os.WriteFile(filepath.Join(c.Mounts[0].HostPath, runnerpod.FileJIT), []byte("secret"), 0o600))
	require.NoError(t, s.Start(t.Context(), pod, c))
	exit := m.wait(s, pod)
	if exit.Code == 15 && os.Geteuid() != 0 {
		t.Log("without root's rights the fake's shares are links, and not read-only")
		exit.Code = 0
	}
	require.Zero(t, exit.Code, "%+v", exit)
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// Nothing shortens the grace period of a pod that never had a job: its machine would keep one of two slots for hours.
func TestGuest_ASilentOneWithoutAConfigurationIsEndedWhenItShouldStop(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open(func(o *Options) { o.GuestSilence, o.LookEvery = 500*time.Millisecond, 20*time.Millisecond })
	pod := m.start(s, `cd "$BULLPEN_STATUS_DIR"; while [ ! -e go ]; do sleep 0.02; done; kill -9 $PPID; rm -f heartbeat; `+runs)
	uid := string(pod.UID)
	require.NoError(t, s.Start(t.Context(), pod, sandbox.Container{Name: runnerpod.ContainerPoller, Command: []string{"sh", "-c", "exit 143"}}))
	_, err := s.Wait(t.Context(), uid, runnerpod.ContainerPoller)
	require.NoError(t, err)
	require.Eventually(t, func() bool { r, err := s.load(uid); return err == nil && r.Heard }, patience, 5*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(m.status(uid), "go"), nil, 0o600))
	require.Eventually(t, func() bool { return guestshare.Absent(m.status(uid), guestshare.FileHeartbeat) }, patience, 5*time.Millisecond)
	require.NoError(t, s.Signal(t.Context(), uid, runnerpod.ContainerRunner, sandbox.Terminate))
	exit := m.wait(s, pod)
	require.Equal(t, reasonSilent, exit.Reason, "%+v", exit)
	require.NoError(t, s.Remove(t.Context(), uid))
}

// EXCL-1: a machine is ended by this agent only if no configuration can have reached it.
func TestStopsIdle_OnlyWithoutAConfiguration(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	for name, c := range map[string]struct {
		poller string // the command; none: a runner whose configuration comes from elsewhere
		jit    string // the file's content; "-": there is none
		asked  bool   // to stop
		idle   bool
	}{
		"stopped before an answer":   {"exit 143", "-", true, true},
		"not asked to stop":          {"exit 143", "-", false, false},
		"nothing to do":              {"exit 0", "", true, true},
		"released":                   {"exit 0", "{}", true, false},
		"released and taken":         {"exit 0", "-", true, false},
		"killed":                     {"exit 137", "-", true, false},
		"killed by a signal":         {"kill -9 $$", "-", true, false},
		"stopped before its handler": {"kill -15 $$", "-", true, true},
		"released, then stopped":     {"exit 143", "{}", true, false},
		"without a poller":           {"", "-", true, false},
		"a poller that still asks":   {"sleep 1000000", "-", true, false},
	} {
		pod, _ := m.newPod(runs)
		uid, shared := string(pod.UID), t.TempDir()
		require.NoError(t, s.Prepare(t.Context(), pod))
		if c.poller != "" {
			require.NoError(t, s.Start(t.Context(), pod, sandbox.Container{Name: runnerpod.ContainerPoller, Command: []string{"sh", "-c", c.poller}}))
			if !strings.HasPrefix(c.poller, "sleep") {
				_, err := s.Wait(t.Context(), uid, runnerpod.ContainerPoller)
				require.NoError(t, err)
			}
		}
		if c.jit != "-" {
			require.NoError(t, os.WriteFile(filepath.Join(shared, runnerpod.FileJIT), []byte(c.jit), 0o600))
		}
		r := record{PodRef: sandbox.PodRef{UID: uid}, Shared: shared}
		if c.asked {
			require.NoError(t, s.orderTerminate(r))
		}
		require.Equal(t, c.idle, s.stopsIdle(r), name)
		require.NoError(t, s.Remove(t.Context(), uid))
	}
	require.False(t, s.stopsIdle(record{}))
}
