//go:build unix

package tart

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

const (
	anOwner  = "0123456789abcdef0123456789abcdef"
	aDigest  = "sha256:" + "fedcba9876543210" + "fedcba9876543210" + "fedcba9876543210" + "fedcba9876543210"
	aDigest2 = "sha256:" + "1111111111111111" + "fedcba9876543210" + "fedcba9876543210" + "fedcba9876543210"
)

func TestNames_NODE7_CarryTheOwner(t *testing.T) {
	require.Equal(t, "bullpen-01234567-uid", runnerName(anOwner, "uid"))
	require.Equal(t, "bullpen-01234567-golden-fedcba9876543210", goldenName(anOwner, aDigest))
	for name, ours := range map[string]bool{
		runnerName(anOwner, "x"): true, goldenName(anOwner, aDigest): true,
		"bullpen-01234568-x": false, "bullpen-": false, "sequoia": false, "bullpen-01234567": false, "": false,
	} {
		require.Equal(t, ours, carriesMark(anOwner, name), name)
	}
	require.False(t, carriesMark("", "bullpen--x"), "without an owner nothing is ours")
}

func TestReference(t *testing.T) {
	for image, valid := range map[string]bool{
		"ghcr.io/cirruslabs/macos-sequoia-base:latest": true, "ghcr.io/cirruslabs/macos-sequoia-base": true,
		"localhost/a": true, "localhost:5000/a/b:1": true, "registry:5000/a": true, "ghcr.io/a/b@" + aDigest: true, "ghcr.io/a/b:t@" + aDigest: true,
		"": false, "sequoia": false, "cirruslabs/macos": false, "-flag.example.com/a b": false, "ghcr.io/": false, "ghcr.io/A": false,
		"ghcr.io/a@sha256:short": false, "https://ghcr.io/a": false, "ghcr.io/a:t:u": false, "--insecure": false, "ghcr.io/a/../b": false,
	} {
		require.Equal(t, valid, reference.MatchString(image), image)
	}
	require.Equal(t, aDigest, digestOf("ghcr.io/a/b:t@"+aDigest))
	require.Empty(t, digestOf("ghcr.io/a/b:t"))
}

// Whatever cannot be run is refused with the name of its field.
func TestPlan_RefusesWithTheField(t *testing.T) {
	good := func() *corev1.Pod {
		pod, _ := mac{t: t, dir: t.TempDir()}.newPod("true")
		pod.Spec.InitContainers = []corev1.Container{{Name: runnerpod.ContainerAgent}}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: runnerpod.ContainerPoller})
		return pod
	}
	m, err := plan(good())
	require.NoError(t, err)
	require.Equal(t, int64(4), m.cpus)
	require.Equal(t, int64(8192), m.memoryMB)
	require.Equal(t, []string{placeholder + "/shared", placeholder + "/volumes/" + runnerpod.VolumeWork},
		[]string{m.places[0].guestPath(), m.places[1].guestPath()})

	limit := func(name corev1.ResourceName, text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits[name] = resource.MustParse(text) }
	}
	for want, spoil := range map[string]func(*corev1.Pod){
		"metadata.uid":                              func(p *corev1.Pod) { p.UID = "a/b" },
		`spec.initContainers[0].name "other"`:       func(p *corev1.Pod) { p.Spec.InitContainers[0].Name = "other" },
		`spec.containers[1].name "dind"`:            func(p *corev1.Pod) { p.Spec.Containers[1].Name = "dind" },
		"spec.containers: container":                func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[1:] },
		`spec.containers[0].image "sequoia"`:        func(p *corev1.Pod) { p.Spec.Containers[0].Image = "sequoia" },
		"spec.containers[0].command":                func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil },
		"spec.containers[0].resources.limits.cpu":   limit(corev1.ResourceCPU, "900m"),
		"spec.containers[0].resources.limits.mem":   limit(corev1.ResourceMemory, "1Gi"),
		`limits.cpu "0"`:                            func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil },
		`volumeMounts[1].name "secret"`:             func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].Name = "secret" },
		"volumeMounts[1].subPath":                   func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].SubPath = "x" },
		"volumeMounts[1].mountPath":                 func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].MountPath = "/" },
		`the container "poller" mounts it, too`:     func(p *corev1.Pod) { p.Spec.Containers[1].VolumeMounts = p.Spec.Containers[0].VolumeMounts[1:] },
		`the volume "bullpen-shared" is missing`:    func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = nil },
		`volumeMounts[0].name "bullpen-shared": on`: func(p *corev1.Pod) { p.Spec.Volumes[0].EmptyDir = nil },
	} {
		pod := good()
		spoil(pod)
		_, err := plan(pod)
		var invalid *sandbox.InvalidError
		require.ErrorAs(t, err, &invalid, want)
		require.ErrorContains(t, err, want)
	}
	pod := good()
	limit(corev1.ResourceCPU, "3900m")(pod)
	m, err = plan(pod)
	require.NoError(t, err)
	require.Equal(t, int64(3), m.cpus, "down, never up")
}

// NODE-4: the guest's report, else Tart's failure, else unknown. An end that was not observed is never a success.
func TestAttribute_NODE4_AnUnknownEndIsNoSuccess(t *testing.T) {
	begun := time.Unix(1000, 0)
	ended := begun.Add(time.Minute)
	for name, test := range map[string]struct {
		evidence
		code    int32
		signal  int32
		unknown bool
		reason  string
	}{
		"reported":                 {evidence: evidence{Report: &guestshare.Report{Code: 3}}, code: 3},
		"reported success":         {evidence: evidence{Report: &guestshare.Report{}}},
		"reported, Tart failed":    {evidence: evidence{Report: &guestshare.Report{}, Run: sandbox.Exit{Code: 1}}},
		"reported, then killed":    {evidence: evidence{Report: &guestshare.Report{Code: 143, Signal: 15}, Killed: true}, code: 143, signal: 15},
		"reported, nobody saw":     {evidence: evidence{Report: &guestshare.Report{Code: 2}, Run: sandbox.Exit{Unknown: true}}, code: 2},
		"could not be started":     {evidence: evidence{Report: &guestshare.Report{Code: 128, Reason: "StartError"}}, code: 128, reason: "StartError"},
		"a reason of the job's":    {evidence: evidence{Report: &guestshare.Report{Code: 1, Reason: "Completed"}}, code: 1},
		"killed":                   {evidence: evidence{Killed: true, Run: sandbox.Exit{Code: 137, Signal: 9}}, code: 137, signal: 9},
		"Tart failed":              {evidence: evidence{Run: sandbox.Exit{Code: 1}}, code: 1, reason: reasonRunFailed},
		"Tart was killed":          {evidence: evidence{Run: sandbox.Exit{Code: 137, Signal: 9}}, code: 137, signal: 9, reason: reasonRunFailed},
		"Tart ended with 0":        {evidence: evidence{}, code: 137, unknown: true, reason: reasonUnknown},
		"nobody saw":               {evidence: evidence{Run: sandbox.Exit{Unknown: true, Code: 137}}, code: 137, unknown: true, reason: reasonUnknown},
		"given up":                 {evidence: evidence{GaveUp: "GuestSilent"}, code: 137, unknown: true, reason: "GuestSilent"},
		"given up, killed as well": {evidence: evidence{GaveUp: "GuestSilent", Killed: true}, code: 137, signal: 9},
	} {
		t.Run(name, func(t *testing.T) {
			test.StartedAt, test.Run.FinishedAt = begun, ended
			exit := attribute(test.evidence)
			require.Equal(t, test.code, exit.Code)
			require.Equal(t, test.signal, exit.Signal)
			require.Equal(t, test.unknown, exit.Unknown)
			require.Equal(t, test.reason, exit.Reason)
		})
	}
	t.Run("whatever is known", func(t *testing.T) { rapid.Check(t, attributesAnything) })
}

// attributesAnything draws any evidence.
func attributesAnything(t *rapid.T) {
	begun := time.Unix(1000, 0)
	e := evidence{StartedAt: begun, Killed: rapid.Bool().Draw(t, "killed"), GaveUp: rapid.SampledFrom([]string{"", "GuestSilent"}).Draw(t, "gave up")}
	e.Run = sandbox.Exit{
		Code: rapid.Int32Range(0, 255).Draw(t, "code"), Unknown: rapid.Bool().Draw(t, "unknown"),
		FinishedAt: begun.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "end")) * time.Second),
	}
	if rapid.Bool().Draw(t, "reported") {
		e.Report = &guestshare.Report{
			Code:       rapid.Int32Range(0, 255).Draw(t, "reported code"),
			StartedAt:  time.Unix(rapid.Int64Range(-1e9, 1e10).Draw(t, "reported begin"), 0),
			FinishedAt: time.Unix(rapid.Int64Range(-1e9, 1e10).Draw(t, "reported end"), 0),
		}
	}
	exit := attribute(e)
	if exit.Code == 0 && (e.Report == nil || e.Report.Code != 0) {
		t.Fatalf("a success that nobody reported: %+v", exit)
	}
	if exit.StartedAt.Before(begun) || exit.FinishedAt.Before(exit.StartedAt) {
		t.Fatalf("the times are out of order: %+v", exit)
	}
	if e.Run.FinishedAt.After(begun) && exit.FinishedAt.After(e.Run.FinishedAt) {
		t.Fatalf("it ended after its machine: %+v", exit)
	}
}

// NODE-5: whatever happens in whatever order, no more slots are taken than there are.
func TestLedger_NODE5_NeverMoreThanThereAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		l := &ledger{total: rapid.IntRange(1, MaxSlots).Draw(t, "total"), held: map[string]bool{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			pod := fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "pod"))
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				before, kept := len(l.held), l.held[pod]
				ok := l.take(pod, now)
				if ok && !kept && before+l.foreign+l.ghosts(now) >= l.total {
					t.Fatalf("a slot too many: %+v", l)
				}
				if !ok && before < l.total-l.foreign-l.ghosts(now) {
					t.Fatalf("a free slot was refused: %+v", l)
				}
			case 1:
				l.release(pod)
			case 2:
				l.foreign = rapid.IntRange(0, 3).Draw(t, "foreign")
			case 3:
				if l.held[pod] {
					l.refused(pod, now, time.Minute)
				}
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(0, 10000).Draw(t, "seconds")) * time.Second)
			}
			if len(l.held) > l.total || l.usable(now) < 0 || l.ghosts(now) > l.total {
				t.Fatalf("the ledger is wrong: %+v", l)
			}
		}
	})
	l := &ledger{total: 2, held: map[string]bool{}}
	for _, pod := range []string{"a", "b", "c"} {
		l.adopt(pod)
	}
	require.False(t, l.take("d", time.Unix(0, 0)), "what runs already is counted, room or not")
}

// NODE-5: a machine that starts may hold a slot before its process can be counted, and so hide a foreign one.
func TestLedger_NODE5_ACountFreesNoSlotWhileAMachineStarts(t *testing.T) {
	now := time.Unix(0, 0)
	l := &ledger{total: 2, held: map[string]bool{}}
	l.recount(0, 1, true)
	require.Equal(t, 1, l.foreign)
	require.True(t, l.take("a", now))
	l.recount(0, 1, true)
	require.False(t, l.take("b", now), "the foreign machine is the one that was counted")
	l.stayed("a")
	l.recount(0, 2, true)
	require.Equal(t, 1, l.foreign)
	l.recount(0, 1, true)
	require.True(t, l.take("b", now), "the foreign machine has ended")
	l.release("b")
	l.recount(2, 0, false)
	l.recount(0, 0, false)
	require.Equal(t, 2, l.foreign, "half a count")
}

func TestLedger_AGhostCoolsDownLongerEachTime(t *testing.T) {
	now := time.Unix(0, 0)
	l := &ledger{total: 2, held: map[string]bool{}}
	for _, pause := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute, 2 * time.Hour, 2 * time.Hour} {
		require.True(t, l.take("a", now))
		l.refused("a", now, 10*time.Minute)
		require.Equal(t, 1, l.usable(now.Add(pause-1)))
		now = now.Add(pause)
		require.Equal(t, 2, l.usable(now), "it is tried again")
	}
	l.stayed("a")
	l.refused("a", now, 10*time.Minute)
	require.Equal(t, 2, l.usable(now.Add(10*time.Minute)), "a machine that came up begins anew")
}

// Every kind of failure has a reason; none but the limit costs a slot.
func TestJudge_KnowsEveryKind(t *testing.T) {
	for _, kind := range tartcli.Kinds() {
		for _, at := range []step{stepPull, stepClone, stepSet, stepRun, stepList} {
			m := judge(at, kind)
			require.NotEmpty(t, m.Reason, kind)
			require.Equal(t, kind == tartcli.KindLimit && at == stepRun, m.CoolSlot, "%s %s", at, kind)
			require.Equal(t, kind == tartcli.KindNoSession, m.NoSession, kind)
		}
	}
	require.True(t, judge(stepRun, tartcli.KindCorrupt).DropGolden)
	require.False(t, judge(stepPull, tartcli.KindNotFound).DropGolden)
	require.True(t, judge(stepRun, tartcli.KindRunning).StopFirst)
	for _, kind := range []tartcli.Kind{tartcli.KindNoProgram, tartcli.KindUsage, tartcli.KindUnreadable} {
		require.True(t, judge(stepList, kind).HostSick, kind)
	}
	require.False(t, judge(stepRun, tartcli.KindUnknown).HostSick, "an unknown message is one pod's matter")
	require.Equal(t, reasonPull, judge(stepClone, tartcli.KindUnauthorized).Reason)
}

func TestSessionKind(t *testing.T) {
	for text, want := range map[string]string{
		"gui/501 = {\n\tsession = Aqua\n}": "Aqua", "\tsession type = Background\n": "Background", "\ttype = login\n": "", "": "",
	} {
		kind, known := sessionKind(text)
		require.Equal(t, want, kind)
		require.Equal(t, want != "", known)
	}
}

func TestParseLease(t *testing.T) {
	for text, want := range map[string]int{
		"{\n    DHCPLeaseTimeSecs = 600;\n}": 600, "{\n    \"DHCPLeaseTimeSecs\" = \"3600\";\n}": 3600, "{\n}": defaultLease, "": defaultLease,
	} {
		seconds, err := parseLease(text)
		require.NoError(t, err)
		require.Equal(t, want, seconds)
	}
	_, err := parseLease("DHCPLeaseTimeSecs = soon;")
	require.ErrorContains(t, err, "soon")
	require.Equal(t, corev1.ConditionTrue, leaseCondition(leaseState{seconds: 600}).Status)
	require.Equal(t, corev1.ConditionFalse, leaseCondition(leaseState{seconds: 86400}).Status)
	require.Equal(t, corev1.ConditionUnknown, leaseCondition(leaseState{err: err}).Status)
}

func TestCollectable_TheLongestUnusedFirst(t *testing.T) {
	at := func(digest string, second int64) golden { return golden{Digest: digest, Used: time.Unix(second, 0)} }
	got := collectable([]golden{at("a", 3), at("b", 1), at("c", 2), at("d", 1)}, map[string]bool{"c": true, "a": false})
	require.Equal(t, []golden{at("b", 1), at("d", 1), at("a", 3)}, got)
}

func TestOffsetAt_CountsNothingAsEarlier(t *testing.T) {
	index := "1000 10\n2000 20\n3000 15\nnonsense\n4000 40\n"
	for nanosecond, want := range map[int64]int64{0: 0, 1000: 0, 1001: 10, 2000: 10, 2500: 20, 5000: 20} {
		require.Equal(t, want, offsetAt(index, time.Unix(0, nanosecond)), nanosecond)
	}
}

func TestConditions(t *testing.T) {
	require.Equal(t, corev1.ConditionUnknown, tartCondition(false, nil).Status)
	require.Equal(t, corev1.ConditionTrue, tartCondition(true, nil).Status)
	sick := tartCondition(true, &tartcli.Error{Operation: "listing VMs", Kind: tartcli.KindUnreadable, Message: "}"})
	require.Equal(t, corev1.ConditionFalse, sick.Status)
	require.Equal(t, "Unreadable", sick.Reason)
	require.True(t, strings.HasPrefix(sick.Message, "listing VMs"))
	require.Equal(t, corev1.ConditionFalse, sessionCondition(true, "none").Status)
	require.Equal(t, corev1.ConditionTrue, ghostCondition(1).Status)
	require.Equal(t, corev1.ConditionFalse, ghostCondition(0).Status)
}

// The autoscaler takes a node's offer for its size: a host that can start no further machine offers exactly those that run.
func TestLedger_NODE9_OffersWhatRunsAndNoMoreWhenNothingCanBeStarted(t *testing.T) {
	now := time.Unix(1000, 0)
	l := ledger{total: MaxSlots, held: map[string]bool{}}
	require.Equal(t, 0, l.offered(now, false))
	require.Equal(t, 2, l.offered(now, true))
	l.adopt("a")
	require.Equal(t, 1, l.offered(now, false))
	require.Equal(t, 2, l.offered(now, true))
	l.refused("b", now, time.Minute)
	require.Equal(t, 1, l.offered(now, true), "the ghost's slot is not offered")
	l.foreign = 1
	require.Equal(t, 1, l.offered(now, true), "the machine that runs keeps its place")
}

func TestTartEnvironment_HasNoCredentials(t *testing.T) {
	require.Equal(t, []sandbox.EnvVar{{Name: "HOME", Value: "/Users/ci"}, {Name: "A", Value: "b=c"}},
		tartEnvironment([]string{"HOME=/Users/ci", "TART_REGISTRY_PASSWORD=hunter2", "TART_REGISTRY_USERNAME=me", "A=b=c"}))
}

func TestKicks_AreFurtherAndFurtherApart(t *testing.T) {
	now := time.Unix(1000, 0)
	var k kicks
	for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		require.Zero(t, k.kick(now))
		require.Equal(t, time.Second, k.kick(now.Add(pause-time.Second)))
		now = now.Add(pause)
	}
}
