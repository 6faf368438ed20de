package jobcontainers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

var (
	running   = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	oneServed = jobcontainer.Request{ID: "r-1", Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleJob, Image: "alpine"}, {Role: jobcontainer.RoleService, Image: "redis"}}}
)

func exited(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: metav1.NewTime(noon)}}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// fixture is a runner's pod in the middle of a job, and the key of its installation.
type fixture struct {
	t   *testing.T
	key *letter.PrivateKey
	pod *corev1.Pod
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	key, err := letter.NewPrivateKey()
	require.NoError(t, err)
	pod, _, err := runnerpod.Build(&v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "runners", Name: "linux"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform:  v1alpha1.PlatformLinux,
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("4"), Memory: resource.MustParse("16Gi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner", JobContainers: &v1alpha1.JobContainers{}},
		},
	}, runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1", JobContainersKey: key.Public()}, "abcd1234")
	require.NoError(t, err)
	pod.Status.Phase = corev1.PodRunning
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: running})
	}
	return &fixture{t: t, key: key, pod: pod}
}

// state sets what the kubelet reports of a container.
func (f *fixture) state(name string, state corev1.ContainerState) {
	for _, statuses := range []*[]corev1.ContainerStatus{&f.pod.Status.ContainerStatuses, &f.pod.Status.EphemeralContainerStatuses} {
		for i := range *statuses {
			if (*statuses)[i].Name == name {
				(*statuses)[i].State = state
				return
			}
		}
	}
	f.pod.Status.EphemeralContainerStatuses = append(f.pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
}

func (f *fixture) view() ephemeral.View {
	v, ok := ephemeral.Read(f.pod)
	require.True(f.t, ok)
	return v
}

func (f *fixture) decide(after time.Duration) decision {
	return decide(f.pod, f.view(), noon.Add(after))
}

func (f *fixture) add(a addition, err error) {
	f.t.Helper()
	require.NoError(f.t, err)
	f.pod.Spec.EphemeralContainers = append(f.pod.Spec.EphemeralContainers, a.containers...)
}

func (f *fixture) seal(request jobcontainer.Request) string {
	text, err := letter.Seal(request, f.key.Public())
	require.NoError(f.t, err)
	return text
}

func (f *fixture) sends(courier string, id, text string, from, limit int) {
	message, err := letter.Cut(id, text, from, limit)
	require.NoError(f.t, err)
	f.state(courier, exited(0, message))
}

func resolved(request jobcontainer.Request) []image.Resolved {
	var images []image.Resolved
	for _, c := range request.Containers {
		images = append(images, image.Resolved{Reference: c.Image + "@sha256:" + strings.Repeat("a", 64), Config: jobcontainer.ImageConfig{Cmd: []string{c.Image}}})
	}
	return images
}

func TestDecide_JOB4_ARequestIsAnsweredOnce(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, wait, f.decide(0).action, "nothing was asked for")
	f.sends("courier", "r-1", f.seal(oneServed), 0, 4096)
	d := f.decide(time.Second)
	require.Equal(t, answer, d.action)
	require.Equal(t, noon, d.asked)
	opened, err := f.key.Open(d.text)
	require.NoError(t, err)
	require.Equal(t, oneServed, opened)
	require.Equal(t, d, f.decide(time.Second), "as long as it is not answered, by whichever controller")

	f.add(grant(f.pod, f.view(), opened, resolved(opened), v1alpha1.ProfileBaseline))
	require.Equal(t, wait, f.decide(time.Second).action, "answered, though no kubelet has seen it")
	names := []string{}
	for _, c := range f.pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{"courier-1", "job-1-0", "service-1-0"}, names, "the response does not wait for the pulls")
	response, ok := f.view().Response("r-1")
	require.True(t, ok)
	require.Equal(t, "service-1-0", response.Containers[1].Name)
	require.Equal(t, []string{"redis"}, response.Containers[1].Config.Cmd)

	// A job that writes the same request once more gets what it got.
	f.sends("courier-1", "r-1", f.seal(oneServed), 0, 4096)
	d = f.decide(time.Second)
	require.Equal(t, answer, d.action)
	before, ok := f.view().Response(d.id)
	require.True(t, ok)
	f.add(deliver(f.pod, f.view(), before))
	require.Len(t, f.view().Containers, 2, "and no container more")

	// The next request gets other names, whatever became of the first.
	f.sends("courier-2", "r-2", f.seal(jobcontainer.Request{ID: "r-2"}), 0, 4096)
	step := jobcontainer.Request{ID: "r-2", Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleStep, Image: "alpine"}}}
	f.add(grant(f.pod, f.view(), step, resolved(step), v1alpha1.ProfileBaseline))
	require.Equal(t, "step-3-0", f.view().Containers[2].Name)
}

func TestDecide_ALongRequestComesInParts(t *testing.T) {
	f := newFixture(t)
	text := f.seal(jobcontainer.Request{ID: "r-1", Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleJob, Image: strings.Repeat("abcdefghij/k-", 40)}}})
	courier, from := "courier", 0
	for range 3 {
		f.sends(courier, "r-1", text, from, 70)
		d := f.decide(0)
		require.Equal(t, proceed, d.action)
		require.Equal(t, "r-1", d.rest.Request)
		require.Greater(t, d.rest.From, from)
		f.add(carry(f.pod, f.view(), d.rest, ""))
		require.Equal(t, wait, f.decide(0).action)
		courier, from = fmt.Sprintf("courier-%d", f.view().Newest().Number), d.rest.From
		args := strings.Join(f.pod.Spec.EphemeralContainers[len(f.pod.Spec.EphemeralContainers)-1].Args, " ")
		require.Contains(t, args, fmt.Sprintf("--request r-1 --from %d -- ", from))
	}
	f.sends(courier, "r-1", text, from, 4096)
	d := f.decide(0)
	require.Equal(t, answer, d.action)
	require.Equal(t, text, d.text)

	f = newFixture(t)
	courier = "courier"
	for i := range maxParts {
		f.sends(courier, "r-1", text, min(i, len(text)-40), 40)
		if d = f.decide(0); d.action == refuse {
			break
		}
		f.add(carry(f.pod, f.view(), d.rest, ""))
		courier = fmt.Sprintf("courier-%d", f.view().Newest().Number)
	}
	require.Equal(t, refuse, d.action, "JOB-5: it never ends")
	require.Contains(t, d.sentence, "too long")
}

func TestDecide_NothingIsAddedToAPodThatEnds(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"deleted":               func(f *fixture) { f.pod.DeletionTimestamp = &metav1.Time{Time: noon} },
		"succeeded":             func(f *fixture) { f.pod.Status.Phase = corev1.PodSucceeded },
		"its runner has exited": func(f *fixture) { f.state("runner", exited(0, "")) },
		"nothing is reported":   func(f *fixture) { f.pod.Status.ContainerStatuses = f.pod.Status.ContainerStatuses[1:] },
	} {
		f := newFixture(t)
		f.sends("courier", "r-1", f.seal(oneServed), 0, 4096)
		end(f)
		require.Equal(t, decision{}, f.decide(time.Hour), name)
	}
}

// A courier exits without a request when its runner does. Otherwise it has failed, and another one takes its place, a few times.
func TestDecide_JOB5_ACourierThatFailsIsReplacedAFewTimes(t *testing.T) {
	f := newFixture(t)
	f.state("courier", exited(137, "panic: out of memory"))
	d := f.decide(time.Second)
	require.Equal(t, wait, d.action)
	require.Equal(t, 4*time.Second, d.again)
	revivals := 0
	for d = f.decide(time.Minute); d.action == revive; d = f.decide(time.Minute) {
		revivals++
		f.add(carry(f.pod, f.view(), d.rest, d.sentence))
		f.state(fmt.Sprintf("courier-%d", f.view().Newest().Number), exited(0, ""))
	}
	require.Equal(t, maxRevivals, revivals)
	require.Equal(t, closed, d.action)
	f.add(carry(f.pod, f.view(), d.rest, d.sentence))
	f.state(fmt.Sprintf("courier-%d", f.view().Newest().Number), exited(0, ""))
	require.Equal(t, wait, f.decide(time.Hour).action, "the volume is closed")
}

func TestDecide_JOB5_AJobAsksAFewTimes(t *testing.T) {
	f := newFixture(t)
	for i := range maxCouriers {
		courier := "courier"
		if i > 0 {
			courier = fmt.Sprintf("courier-%d", i)
		}
		id := fmt.Sprintf("r-%d", i)
		f.sends(courier, id, f.seal(jobcontainer.Request{ID: id}), 0, 4096)
		d := f.decide(0)
		if d.action == closed {
			require.Equal(t, maxCouriers, i+1)
			require.Contains(t, d.sentence, "150 times")
			return
		}
		require.Equal(t, answer, d.action)
		f.add(decline(f.pod, f.view(), id, "no"))
	}
	t.Fatal("it may ask forever")
}

// unstarted lets the container runtime have containers that it does not start, as the kubelet reported at noon.
func (f *fixture) unstarted(names ...string) {
	for _, name := range names {
		f.state(name, waiting("RunContainerError", "connection reset by peer"))
		statuses := f.pod.Status.EphemeralContainerStatuses
		at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
		statuses[at].ContainerID = "containerd://1"
	}
	f.pod.ManagedFields = []metav1.ManagedFieldsEntry{
		{Subresource: "ephemeralcontainers", Time: &metav1.Time{Time: noon.Add(time.Hour)}},
		{Subresource: "status", Time: &metav1.Time{Time: noon.Add(-time.Minute)}}, {Subresource: "status", Time: &metav1.Time{Time: noon}},
	}
}

// A response arrives although the runtime was restarted while it started what brings it.
func TestDecide_JOB4_ACourierThatDoesNotStartIsReplaced(t *testing.T) {
	f := newFixture(t)
	f.sends("courier", "r-1", f.seal(oneServed), 0, 4096)
	f.add(grant(f.pod, f.view(), oneServed, resolved(oneServed), v1alpha1.ProfileBaseline))
	brings := f.view().Newest().Delivery()
	f.unstarted("courier-1")
	require.Equal(t, decision{again: startPatience - time.Second}, f.decide(time.Second), "it may be about to start")
	require.Equal(t, revive, f.decide(startPatience).action)

	for n := range maxRevivals {
		f.add(repeat(f.pod, f.view()))
		newest := f.view().Newest()
		require.Equal(t, n+2, newest.Number)
		require.Equal(t, brings, newest.Delivery(), "what the other brings as well")
		require.Equal(t, wait, f.decide(startPatience).action, "no kubelet has seen it")
		f.unstarted(fmt.Sprintf("courier-%d", newest.Number))
	}
	d := f.decide(startPatience)
	require.Equal(t, closed, d.action)
	require.Contains(t, d.sentence, "failed 6 times")
	f.add(carry(f.pod, f.view(), d.rest, d.sentence))
	f.unstarted(fmt.Sprintf("courier-%d", f.view().Newest().Number))
	require.Equal(t, wait, f.decide(startPatience).action, "not forever")
}

func TestNews_AContainerThatTheRuntimeDoesNotStartIsReported(t *testing.T) {
	f := newFixture(t)
	f.sends("courier", "r-1", f.seal(oneServed), 0, 4096)
	f.add(grant(f.pod, f.view(), oneServed, resolved(oneServed), v1alpha1.ProfileBaseline))
	f.state("courier-1", running)
	f.unstarted("service-1-0")
	f.state("service-1-0", waiting("ContainerCreating", ""))
	require.Equal(t, decision{again: startPatience - time.Second}, f.decide(time.Second))
	d := f.decide(startPatience)
	require.Len(t, d.failures, 1)
	require.True(t, d.failures[0].Final)
	require.True(t, d.failures[0].Retriable)
	require.Contains(t, d.failures[0].Text, "its node was interrupted")

	notice, err := ephemeral.NextNotice(f.pod, f.view(), d.failures)
	require.NoError(t, err)
	f.add(addition{containers: []corev1.EphemeralContainer{notice}}, nil)
	require.Equal(t, decision{}, f.decide(startPatience), "the notice is on its way")
	f.unstarted("notice-1")
	require.Equal(t, decision{again: startPatience - time.Second}, f.decide(time.Second))
	require.Equal(t, d.failures, f.decide(startPatience).failures, "the same node was interrupted once more")
	f.state("notice-1", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError"}})
	require.Equal(t, d.failures, f.decide(startPatience).failures, "a start that was cancelled")
	f.unstarted("notice-1")
	f.pod.ManagedFields = nil
	require.Empty(t, f.decide(time.Hour).failures, "nothing says for how long it has been like that")

	f.pod.Status.EphemeralContainerStatuses = f.pod.Status.EphemeralContainerStatuses[:2]
	f.pod.Spec.EphemeralContainers = f.pod.Spec.EphemeralContainers[:len(f.pod.Spec.EphemeralContainers)-1]
	f.pod.Status.EphemeralContainerStatuses[1].ContainerID = ""
	require.Equal(t, decision{}, f.decide(time.Hour), "its image may be large")
}

// A notice that fails whenever it is sent is not sent forever.
func TestNews_SendsANoticeAgainSomeTimes(t *testing.T) {
	f := newFixture(t)
	f.sends("courier", "r-1", f.seal(oneServed), 0, 4096)
	f.add(grant(f.pod, f.view(), oneServed, resolved(oneServed), v1alpha1.ProfileBaseline))
	f.state("courier-1", running)
	f.state("service-1-0", waiting("RunContainerError", "EOF"))
	sent := 0
	for d := f.decide(time.Minute); len(d.failures) > 0; d = f.decide(time.Minute) {
		sent++
		require.Less(t, sent, 10)
		notice, err := ephemeral.NextNotice(f.pod, f.view(), d.failures)
		require.NoError(t, err)
		f.add(addition{containers: []corev1.EphemeralContainer{notice}}, nil)
		f.state(fmt.Sprintf("notice-%d", sent), corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError"}})
	}
	require.Equal(t, 6, sent, "once, and five times more")
}

func TestNews_AJobIsToldOfEachFailureAtMostTwice(t *testing.T) {
	f := newFixture(t)
	f.sends("courier", "r-1", f.seal(oneServed), 0, 4096)
	f.add(grant(f.pod, f.view(), oneServed, resolved(oneServed), v1alpha1.ProfileBaseline))
	f.state("job-1-0", waiting("PodInitializing", ""))
	f.state("service-1-0", waiting("ErrImagePull", "pull\nfailed: ::error::x\x1b[31m"))
	d := f.decide(0)
	require.Len(t, d.failures, 1)
	require.False(t, d.failures[0].Final)
	require.Equal(t, "Image 'redis@sha256:"+strings.Repeat("a", 64)+"' could not be pulled: pull failed: ::error::x [31m", d.failures[0].Text)
	notice, err := ephemeral.NextNotice(f.pod, f.view(), d.failures)
	require.NoError(t, err)
	require.Equal(t, "notice-1", notice.Name)
	f.pod.Spec.EphemeralContainers = append(f.pod.Spec.EphemeralContainers, notice)
	f.state("service-1-0", waiting("ImagePullBackOff", "back-off"))
	require.Equal(t, decision{}, f.decide(0), "the notice is on its way")
	f.state("notice-1", exited(0, ""))
	d = f.decide(retryPatience)
	require.Empty(t, d.failures, "the kubelet may be pulling it, which it does not report")
	require.Equal(t, pullPatience-retryPatience, d.again)
	f.state("service-1-0", waiting("CreateContainerError", "connection reset by peer"))
	require.Empty(t, f.decide(retryPatience).failures, "a new failure, which the kubelet retries as well")
	f.state("service-1-0", waiting("ImagePullBackOff", "back-off"))
	d = f.decide(pullPatience)
	require.Len(t, d.failures, 1)
	require.True(t, d.failures[0].Final, "the kubelet has tried it five times")
	notice, err = ephemeral.NextNotice(f.pod, f.view(), d.failures)
	require.NoError(t, err)
	require.Equal(t, "notice-2", notice.Name)
	f.pod.Spec.EphemeralContainers = append(f.pod.Spec.EphemeralContainers, notice)
	f.state("notice-2", exited(0, ""))
	require.Equal(t, decision{}, f.decide(time.Hour))

	f.state("job-1-0", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}})
	d = f.decide(time.Hour)
	require.Len(t, d.failures, 1)
	require.True(t, d.failures[0].OutOfMemory)
	require.Contains(t, d.failures[0].Text, "more memory than its pool allows")
}

func TestFailureOf_SaysWhatTheKubeletReports(t *testing.T) {
	long := strings.Repeat("é", longestText)
	for name, c := range map[string]struct {
		state  corev1.ContainerState
		text   string
		final  bool
		silent bool
	}{
		"runs":                    {state: running, silent: true},
		"not reported yet":        {silent: true},
		"being made":              {state: waiting("ContainerCreating", ""), silent: true},
		"has ended":               {state: exited(0, ""), silent: true},
		"its runner has ended":    {state: exited(jobcontainer.ExitRunnerEnded, ""), silent: true},
		"no such image":           {state: waiting("ErrImagePull", "not found"), text: "Image 'x' could not be pulled: not found"},
		"never pulled":            {state: waiting("ErrImageNeverPull", ""), text: "Image 'x' could not be pulled: ErrImageNeverPull", final: true},
		"no Secret":               {state: waiting("CreateContainerConfigError", "secret \"x\" not found"), text: "could not be started: secret \"x\" not found"},
		"containerd is restarted": {state: waiting("CreateContainerError", "connection reset by peer"), text: "could not be started: connection reset by peer"},
		"cannot run":              {state: waiting("RunContainerError", "no such file"), text: "interrupted while it started it (no such file).", final: true},
		"no such program":         {state: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "exec: no such file"}}, text: "could not be started: exec: no such file", final: true},
		"crashed":                 {state: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}}, text: "exited with code 2 (Error)", final: true},
		"a long message":          {state: waiting("ErrImagePull", long), text: "…"},
	} {
		failure, failed := failureOf(ephemeral.Container{Name: "job-1-0", Image: "x", State: c.state})
		require.Equal(t, !c.silent, failed, name)
		if failed {
			require.Contains(t, failure.Text, c.text, name)
			require.Equal(t, c.final, failure.Final, name)
			require.Equal(t, strings.Contains(name, "run") || strings.Contains(name, "program"), failure.Retriable, name)
			require.Less(t, len(failure.Text), 500, name)
			require.NotContains(t, failure.Text, "\n", name)
		}
	}
}

// What does not fit into a pod is refused, and not silently lost.
func TestGrant_JOB5_WhatDoesNotFitIsRefused(t *testing.T) {
	noise := func(size int) string {
		var b strings.Builder
		for x := uint32(1); b.Len() < size; x = x*1664525 + 1013904223 {
			b.WriteByte('!' + byte(x>>24)%90)
		}
		return b.String()
	}
	f := newFixture(t)
	images := resolved(oneServed)
	images[0].Config.Env = []string{noise(450 << 10)}
	a, err := grant(f.pod, f.view(), oneServed, images, "")
	require.NoError(t, err)
	require.Contains(t, a.response.Refusal, "too long")
	require.Len(t, a.containers, 1, "all of them, or none")

	images[0].Config.Env = []string{noise(200 << 10)}
	f.pod.Annotations["a"] = strings.Repeat("x", 700<<10)
	a, err = grant(f.pod, f.view(), oneServed, images, "")
	require.NoError(t, err)
	require.Contains(t, a.response.Refusal, "cannot describe another container")
}

func TestGrant_JOB1_OnlyTheImageIsTheWorkflows(t *testing.T) {
	f := newFixture(t)
	for _, profile := range []v1alpha1.SecurityProfile{v1alpha1.ProfileBaseline, v1alpha1.ProfileRestricted, ""} {
		a, err := grant(f.pod, f.view(), oneServed, resolved(oneServed), profile)
		require.NoError(t, err)
		b, err := grant(f.pod, f.view(), jobcontainer.Request{ID: "r-1", Containers: []jobcontainer.Wanted{
			{Role: jobcontainer.RoleJob, Image: "evil", Credentials: &jobcontainer.Credentials{Username: "u", Password: "secret"}}, oneServed.Containers[1],
		}}, resolved(oneServed), profile)
		require.NoError(t, err)
		require.Equal(t, a, b)
		for _, c := range a.containers {
			require.Empty(t, c.Env)
			require.Empty(t, c.EnvFrom)
			require.Empty(t, c.TargetContainerName)
			require.Nil(t, c.SecurityContext.Privileged)
			require.True(t, c.SecurityContext.Capabilities == nil || len(c.SecurityContext.Capabilities.Add) == 0)
		}
		require.Equal(t, jobcontainer.Command("job-1-0"), a.containers[1].Command)
		restricted := profile == v1alpha1.ProfileRestricted
		require.Equal(t, restricted, a.containers[1].SecurityContext.RunAsUser == nil)
	}
}
