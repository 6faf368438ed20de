package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/jobcontainers"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const imageDigest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// registry stands for all registries of a test.
type registry struct {
	mu    sync.Mutex
	hang  bool
	slow  string // the tenant whose registries hang
	asked chan image.Query
}

func (r *registry) Resolve(ctx context.Context, query image.Query) (image.Resolved, error) {
	r.mu.Lock()
	hang := r.hang || r.slow != "" && query.Tenant == r.slow
	r.mu.Unlock()
	select {
	case r.asked <- query:
	default:
	}
	if hang {
		<-ctx.Done()
		return image.Resolved{}, ctx.Err()
	}
	name, err := image.ParseName(query.Image)
	if err != nil {
		return image.Resolved{}, err
	}
	if !query.Policy.Permits(name) {
		_, err := image.ParseName("not permitted!") // an error with a sentence
		return image.Resolved{}, err
	}
	return image.Resolved{Reference: name.Registry + "/" + name.Repository + imageDigest, Config: jobcontainer.ImageConfig{Cmd: []string{"run"}}}, nil
}

func (r *registry) hangs(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = hang
}

// jobBench is a bench with job containers, and one busy runner.
type jobBench struct {
	*bench
	registry *registry
	pod      string
}

func newJobBench(t *testing.T, change ...func(*v1alpha1.RunnerPool)) *jobBench {
	t.Helper()
	b := newJobBenchWithout(t)
	b.startJobs()
	b.bench.pool("jobs", 1, append(change, func(p *v1alpha1.RunnerPool) {
		if p.Spec.Template.JobContainers == nil {
			p.Spec.Template.JobContainers = &v1alpha1.JobContainers{}
		}
	})...)
	b.pod = b.havePods("jobs", 1)[0].Name
	b.occupy()
	return b
}

// newJobBenchWithout has no pool yet, and no controller.
func newJobBenchWithout(t *testing.T) *jobBench {
	t.Helper()
	b := &jobBench{bench: newBench(t), registry: &registry{asked: make(chan image.Query, 16)}}
	b.stop()
	b.env.ShippedJobContainers(t, b.namespace)
	b.env.RegisterNode(t, "node-"+b.namespace, func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "amd64" })
	return b
}

// occupy waits until the runner is prepared for containers, and reports a job of it.
func (b *jobBench) occupy() {
	b.t.Helper()
	b.eventually("the pod is bound to a node", func() bool { return b.read().Spec.NodeName != "" })
	b.eventually("its pull Secret is there", func() bool { return b.secret() != nil })
	b.states(map[string]corev1.ContainerState{runnerpod.ContainerPoller: exited(0), runnerpod.ContainerIdle: exited(0)})
}

func (b *jobBench) startJobs(change ...func(*controller.Options)) {
	options := b.options()
	options.JobContainers = &controller.JobContainersOptions{Images: b.registry, KeyNamespace: kit.SystemNamespace}
	for _, c := range change {
		c(&options)
	}
	b.stop = b.run(options)
}

func (b *jobBench) read() *corev1.Pod {
	var pod corev1.Pod
	require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: b.pod}, &pod))
	return &pod
}

func (b *jobBench) secret() *corev1.Secret {
	var secret corev1.Secret
	err := b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: runnerpod.PullSecretOf(b.read())}, &secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return &secret
}

// states reports containers as a kubelet does; those that were not named run, or are as they were.
func (b *jobBench) states(changed map[string]corev1.ContainerState) {
	b.t.Helper()
	require.NoError(b.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod := b.read()
		pod.Status.Phase = corev1.PodRunning
		report := func(name string, statuses []corev1.ContainerStatus) corev1.ContainerStatus {
			status := corev1.ContainerStatus{Name: name, Image: "x", State: running()}
			for _, s := range statuses {
				if s.Name == name {
					status = s
				}
			}
			if state, ok := changed[name]; ok {
				status.State = state
			}
			status.Ready = status.State.Running != nil
			return status
		}
		var ordinary, added []corev1.ContainerStatus
		for _, c := range pod.Spec.Containers {
			ordinary = append(ordinary, report(c.Name, pod.Status.ContainerStatuses))
		}
		for _, c := range pod.Spec.EphemeralContainers {
			added = append(added, report(c.Name, pod.Status.EphemeralContainerStatuses))
		}
		pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses = ordinary, added
		return b.kubelet.Status().Update(b.t.Context(), pod)
	}))
}

// ask reports that a courier has carried a request out of the pod.
func (b *jobBench) ask(courierName string, request jobcontainer.Request) {
	b.t.Helper()
	text, err := letter.Seal(request, b.publicKey())
	require.NoError(b.t, err)
	message, err := letter.Cut(request.ID, text, 0, 4096)
	require.NoError(b.t, err)
	state := exited(0)
	state.Terminated.Message = message
	b.states(map[string]corev1.ContainerState{courierName: state})
}

// response waits for the response that a courier brings.
func (b *jobBench) response(id string) jobcontainer.Response {
	b.t.Helper()
	var response jobcontainer.Response
	b.eventually("a response to "+id, func() bool {
		v, ok := ephemeral.Read(b.read())
		require.True(b.t, ok)
		response, ok = v.Response(id)
		return ok
	})
	return response
}

func (b *jobBench) added() []string {
	names := []string{}
	for _, c := range b.read().Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

const password = "correct-horse-battery-staple"

func withService(id string) jobcontainer.Request {
	return jobcontainer.Request{ID: id, Containers: []jobcontainer.Wanted{
		{Role: jobcontainer.RoleJob, Image: "registry.example/team/app:1", Credentials: &jobcontainer.Credentials{Username: "u", Password: password, Server: "registry.example"}},
		{Role: jobcontainer.RoleService, Image: "postgres:17"},
	}}
}

// A job's request becomes containers of its pod, and its credentials stand in the pull Secret alone.
func TestJobContainers_JOB3_JOB6_AreAddedUnderTheShippedRoles(t *testing.T) {
	b := newJobBench(t)
	require.Equal(t, b.read().UID, b.secret().OwnerReferences[0].UID, "it goes with its pod")
	require.JSONEq(t, `{"auths":{}}`, string(b.secret().Data[corev1.DockerConfigJsonKey]))
	b.ask("courier", withService("r-1"))
	response := b.response("r-1")
	require.Empty(t, response.Refusal)
	require.Equal(t, []string{"courier-1", "job-1-0", "service-1-0"}, b.added())
	require.True(t, strings.HasSuffix(response.Containers[1].Image, "library/postgres"+imageDigest), response.Containers[1].Image)
	require.Equal(t, image.Platform{OS: "linux", Architecture: "amd64"}, await.Receive(t, b.registry.asked, "the platform of the pod's node").Platform)

	secret := b.secret()
	require.Contains(t, string(secret.Data[corev1.DockerConfigJsonKey]), password)
	raw, err := json.Marshal(b.read())
	require.NoError(t, err)
	require.NotContains(t, string(raw), password)
	var events corev1.EventList
	b.eventually("Events about the pod", func() bool {
		require.NoError(t, b.admin.List(t.Context(), &events, client.InNamespace(b.namespace)))
		return strings.Contains(fmt.Sprint(events.Items), "JobContainerAdded")
	})
	require.NotContains(t, fmt.Sprint(events.Items), password)

	// A failed pull is reported to the job by a container that carries nothing else.
	b.states(map[string]corev1.ContainerState{
		"courier-1": running(), "service-1-0": {Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}},
	})
	b.eventually("a notice", func() bool { return strings.Contains(strings.Join(b.added(), " "), "notice-1") })
	v, _ := ephemeral.Read(b.read())
	require.Contains(t, v.Notices[0].Failures[0].Text, "could not be pulled: denied")
	require.Equal(t, "courier-1", fmt.Sprintf("courier-%d", v.Newest().Number), "the same one waits for the next request")
}

// JOB-4: a controller that dies at any step leaves a pod from which the next one goes on, without a second set of containers.
func TestJobContainers_JOB4_AControllerThatDiesLosesNothing(t *testing.T) {
	b := newJobBench(t)

	// While it asks the registry.
	b.registry.hangs(true)
	b.ask("courier", withService("r-1"))
	await.Receive(t, b.registry.asked, "the registry is asked")
	b.stop()
	require.Empty(t, b.added())
	b.registry.hangs(false)

	// After the Secret was written, before the containers were added: the right to add them is taken away.
	rights := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "bullpen-job-containers"}}
	require.NoError(t, b.admin.Get(t.Context(), client.ObjectKeyFromObject(rights), rights))
	b.forbid(rights)
	b.startJobs()
	b.eventually("the Secret is filled", func() bool { return strings.Contains(string(b.secret().Data[corev1.DockerConfigJsonKey]), password) })
	b.stop()
	require.Empty(t, b.added())
	require.NoError(t, b.admin.Delete(t.Context(), rights))
	again := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: rights.Name}, RoleRef: rights.RoleRef, Subjects: rights.Subjects}
	again.RoleRef.Name = "bullpen-job-containers"
	require.NoError(t, b.admin.Create(t.Context(), again))
	b.startJobs()
	require.Empty(t, b.response("r-1").Refusal)
	want := []string{"courier-1", "job-1-0", "service-1-0"}
	require.Equal(t, want, b.added())

	// After the containers were added, whatever the kubelet has reported by then.
	b.stop()
	b.startJobs()
	b.states(map[string]corev1.ContainerState{"courier-1": running()})
	b.ask("courier-1", withService("r-1")) // and the job asks the same once more
	b.eventually("an answer", func() bool { return len(b.added()) > len(want) })
	require.ElementsMatch(t, append(want, "courier-2"), b.added(), "the API server puts new ones before the others")
}

// JOB-4: a response arrives although the runtime was restarted while it started the courier that brings it.
func TestJobContainers_JOB4_ACourierThatDoesNotStartIsReplaced(t *testing.T) {
	b := newJobBench(t)
	b.ask("courier", withService("r-1"))
	want := b.response("r-1")
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod := b.read()
		pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
			Name: "courier-1", Image: "x", ContainerID: "containerd://1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "RunContainerError"}},
		}}
		return b.kubelet.Status().Update(t.Context(), pod)
	}))
	b.eventually("another courier", func() bool { return slices.Contains(b.added(), "courier-2") })
	v, ok := ephemeral.Read(b.read())
	require.True(t, ok)
	require.Equal(t, []jobcontainer.Response{want}, v.Newest().Delivery().Responses)
}

// A kubelet must always be able to report that the runner has ended: etcd refuses larger objects. A job decides how large its pod becomes.
func TestJobContainers_JOB5_AFullPodGetsNothingButTheReason(t *testing.T) {
	b := newJobBench(t, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Env = append(p.Spec.Template.Env, corev1.EnvVar{Name: "LARGE", Value: strings.Repeat("x", 895<<10)})
	})
	b.ask("courier", withService("r-1"))
	b.eventually("requests are closed", func() bool {
		v, ok := ephemeral.Read(b.read())
		require.True(t, ok)
		return strings.Contains(v.Newest().Delivery().Closed, "cannot describe another container")
	})
	require.Equal(t, []string{"courier-1"}, b.added())
}

// The pods of a tenant whose registries hang are more than the controller's workers. A job of another tenant has its containers at once.
func TestJobContainers_ATenantWithSlowRegistriesDelaysNoOther(t *testing.T) {
	b := newJobBench(t)
	honest := b.pod
	b.registry.slow = "slow"
	b.bench.pool("slow", 40, func(p *v1alpha1.RunnerPool) { p.Spec.Template.JobContainers = &v1alpha1.JobContainers{} })
	for _, pod := range b.havePods("slow", 40) {
		b.pod = pod.Name
		b.occupy()
		b.ask("courier", withService("r-1"))
	}
	await.Receive(t, b.registry.asked, "a registry that hangs is asked")
	b.pod = honest
	before := time.Now()
	b.ask("courier", withService("r-1"))
	require.Empty(t, b.response("r-1").Refusal)
	require.Less(t, time.Since(before), 20*time.Second, "less than a lookup may take")
}

// forbid replaces the controller's rights by a role with the Secret alone.
func (b *jobBench) forbid(binding *rbacv1.RoleBinding) {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "secrets-alone"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch"}},
	}}
	require.NoError(b.t, b.admin.Create(b.t.Context(), role))
	require.NoError(b.t, b.admin.Delete(b.t.Context(), binding))
	binding.ObjectMeta = metav1.ObjectMeta{Namespace: b.namespace, Name: binding.Name}
	binding.RoleRef.Name = role.Name
	require.NoError(b.t, b.admin.Create(b.t.Context(), binding))
}

// What cannot be had is refused in a sentence, and the next request is served.
func TestJobContainers_RefusalsReachTheJob(t *testing.T) {
	b := newJobBench(t, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.JobContainers = &v1alpha1.JobContainers{AllowedImages: []string{"postgres"}}
	})
	ask := func(number int, request jobcontainer.Request) string {
		name := "courier"
		if number > 0 {
			name = fmt.Sprintf("courier-%d", number)
		}
		request.ID = fmt.Sprintf("r-%d", number)
		b.ask(name, request)
		return b.response(request.ID).Refusal
	}
	postgres := jobcontainer.Request{Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleService, Image: "postgres"}}}
	require.Contains(t, ask(0, withService("")), "not permitted!", "the sentence is package image's")
	require.Equal(t, []string{"courier-1"}, b.added(), "all of it, or nothing")
	require.Contains(t, ask(1, jobcontainer.Request{}), "names no container")
	require.Empty(t, ask(2, postgres))
	b.states(map[string]corev1.ContainerState{"courier-3": running()})
	b.edit("jobs", func(p *v1alpha1.RunnerPool) { p.Spec.Template.JobContainers = nil })
	b.eventually("the pool changes", func() bool { return b.get("jobs").Spec.Template.JobContainers == nil })
	require.Contains(t, ask(3, postgres), "no longer allows")
}

// A namespace of Pod Security level restricted admits no root: the job gets that refusal, and a pool can be restricted instead.
func TestJobContainers_JOB1_PodSecurityIsToldToTheJob(t *testing.T) {
	for profile, refused := range map[v1alpha1.SecurityProfile]bool{v1alpha1.ProfileBaseline: true, v1alpha1.ProfileRestricted: false} {
		t.Run(string(profile), func(t *testing.T) {
			b := newJobBench(t, func(p *v1alpha1.RunnerPool) {
				p.Spec.Template.JobContainers = &v1alpha1.JobContainers{SecurityProfile: profile}
			})
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
			require.NoError(t, b.admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}, patch))
			b.eventually("the level is enforced", func() bool {
				root := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "root"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "root", Image: "x"}}}}
				return apierrors.IsForbidden(b.admin.Create(t.Context(), root, client.DryRunAll))
			})
			b.ask("courier", withService("r-1"))
			response := b.response("r-1")
			require.Equal(t, refused, response.Refusal != "", response.Refusal)
			if refused {
				require.Contains(t, response.Refusal, "does not admit")
				require.Contains(t, response.Refusal, "restricted")
				require.Equal(t, []string{"courier-1"}, b.added())
			}
		})
	}
}

// The chart makes the Secret empty. Whichever controller is first makes the key, all agree on it, and a restart keeps it.
func TestJobContainers_JOB3_ControllersAgreeOnOneKey(t *testing.T) {
	env := kit.Cluster(t)
	namespace, admin := env.Namespace(t), env.Client(t)
	_, err := jobcontainers.LoadKey(t.Context(), admin, namespace)
	require.ErrorContains(t, err, "install the chart with jobContainers.enabled=true")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: jobcontainers.KeySecret}}
	require.NoError(t, admin.Create(t.Context(), secret))
	type loaded struct {
		public string
		err    error
	}
	found := make(chan loaded, 3)
	for range cap(found) {
		go func() {
			key, err := jobcontainers.LoadKey(t.Context(), admin, namespace)
			if err != nil {
				found <- loaded{err: err}
				return
			}
			found <- loaded{public: key.Public()}
		}()
	}
	first := await.Receive(t, found, "a key")
	require.NoError(t, first.err)
	for range cap(found) - 1 {
		require.Equal(t, first, await.Receive(t, found, "the same key"))
	}
	again, err := jobcontainers.LoadKey(t.Context(), admin, namespace)
	require.NoError(t, err)
	require.Equal(t, first.public, again.Public())
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"private-key":"AAAA"}}`))
	require.NoError(t, admin.Patch(t.Context(), secret, patch))
	_, err = jobcontainers.LoadKey(t.Context(), admin, namespace)
	require.ErrorContains(t, err, "delete its key private-key")
}

// A registry that hangs ends the request, and never reaches the kubelet.
func TestJobContainers_ALateRequestIsRefused(t *testing.T) {
	b := newJobBench(t)
	state := exited(0)
	state.Terminated.FinishedAt = metav1.NewTime(time.Now().Add(-time.Hour))
	text, err := letter.Seal(withService("r-1"), b.publicKey())
	require.NoError(t, err)
	state.Terminated.Message, err = letter.Cut("r-1", text, 0, 4096)
	require.NoError(t, err)
	b.states(map[string]corev1.ContainerState{"courier": state})
	require.Contains(t, b.response("r-1").Refusal, "was not answered within")
	require.Equal(t, []string{"courier-1"}, b.added())
}

func (b *jobBench) publicKey() string {
	for _, c := range b.read().Spec.Containers {
		for _, e := range c.Env {
			if e.Name == courier.EnvPublicKey {
				return e.Value
			}
		}
	}
	b.t.Fatal("the pod has no public key")
	return ""
}
