package machost_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	host "github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const (
	patience = 90 * time.Second // what a controller does by itself takes milliseconds, but the machine may be busy
	interval = 50 * time.Millisecond

	controllerUser = "system:serviceaccount:bullpen-system:bullpen-controller"

	keySecret, passwordSecret, kubeconfigSecret = "mac-ssh", "mac-password", "mac-kubeconfig"
	// Secrets that must be found nowhere.
	password = "pl4nted pa55word"
	token    = "planted-token-0123456789abcdef"
)

// bench is a control plane, a controller under its own role, and a stand-in for Macs.
type bench struct {
	t         *testing.T
	env       *kit.Env
	namespace string
	admin     client.WithWatch
	macs      *fakeMacs
	ahead     atomic.Int64
	paced     float64 // the number of passes when pace last advanced the clock
	log       lockedBuffer
	registry  *prometheus.Registry
	binary    string // digest of controllers that are started from now on
	attempts  int
	keyLine   string // of the SSH key
	stop      func()
}

func kubeconfigWith(token string) string {
	return "clusters: [{name: a, cluster: {server: 'https://10.0.0.1'}}]\nusers: [{name: a, user: {token: " + token + "}}]\n" +
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n"
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, env: kit.Cluster(t), macs: &fakeMacs{}, binary: "1111", stop: func() {}}
	b.namespace = b.env.Namespace(t)
	b.admin = b.env.Client(t, v1alpha1.AddToScheme)
	b.env.ShippedMacRoles(t, b.namespace, keySecret, passwordSecret, kubeconfigSecret)
	key := newKey(t)
	b.keyLine = strings.Split(key, "\n")[2]
	b.secret(keySecret, "id", key)
	b.secret(passwordSecret, "password", password)
	b.secret(kubeconfigSecret, "kubeconfig", kubeconfigWith(token))
	b.config("fleet", "user: ci\n")
	b.start()
	t.Cleanup(func() {
		if t.Failed() {
			b.describe()
		}
		b.stop()
		b.nothingLeaked()
	})
	return b
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newKey makes a private key in the form of OpenSSH.
func newKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	return string(pem.EncodeToMemory(block))
}

// start runs a controller under the role that is shipped (NET-8), until stop.
func (b *bench) start() {
	b.registry = prometheus.NewRegistry()
	options := controller.Options{
		Config: b.env.As(b.t, controllerUser, "system:serviceaccounts", "system:authenticated"), Namespace: b.namespace, Server: noServer{},
		Pod:      runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"},
		Registry: b.registry, Log: slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) },
		Macs: &controller.MacOptions{
			Bootstrapper: b.macs, BinarySHA256: b.binary, SecretsNamespace: kit.SystemNamespace, Attempts: b.attempts,
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx, options) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := await.Result(done, "the controllers stop"); err != nil { // require would leave sync.OnceFunc, which panics then
			b.t.Errorf("stopping the controllers: %v", err)
		}
	})
}

func (b *bench) restart() {
	b.stop()
	b.start()
}

// fakeMacs are Macs on which attempts do what a test says.
type fakeMacs struct {
	mu     sync.Mutex
	script func(ctx context.Context, n int, r machost.Request) machost.Result
	asked  []machost.Request
	now    int
	most   int
}

// do has every attempt from now on do this. n counts them, from 1.
func (m *fakeMacs) do(script func(ctx context.Context, n int, r machost.Request) machost.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.script, m.asked, m.most = script, nil, 0
}

func (m *fakeMacs) returns(result machost.Result) {
	m.do(func(context.Context, int, machost.Request) machost.Result { return result })
}

func (m *fakeMacs) requests() []machost.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]machost.Request(nil), m.asked...)
}

func (m *fakeMacs) count() int { return len(m.requests()) }

// Bootstrap implements machost.Bootstrapper.
func (m *fakeMacs) Bootstrap(ctx context.Context, r machost.Request) machost.Result {
	m.mu.Lock()
	m.asked = append(m.asked, r)
	n, script := len(m.asked), m.script
	m.now++
	m.most = max(m.most, m.now)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.now--
		m.mu.Unlock()
	}()
	if script == nil {
		return succeeded
	}
	return script(ctx, n, r)
}

// CheckKey implements machost.Bootstrapper.
func (m *fakeMacs) CheckKey(key host.Secret) error { return machost.SSH{}.CheckKey(key) }

var (
	fingerprint = "SHA256:" + strings.Repeat("a", 43)
	succeeded   = machost.Result{Outcome: machost.OutcomeSucceeded, HostKey: fingerprint}
	busy        = machost.Result{Outcome: machost.OutcomeDeferred, HostKey: fingerprint, Deferred: []string{"egress"}, Err: host.ErrBusy}
)

func failed(outcome machost.Outcome, why string) machost.Result {
	return machost.Result{Outcome: outcome, HostKey: fingerprint, Err: errors.New(why)}
}

// until has an attempt last until the channel is closed.
func until(done <-chan struct{}, result machost.Result) func(context.Context, int, machost.Request) machost.Result {
	return func(ctx context.Context, _ int, _ machost.Request) machost.Result {
		select {
		case <-done:
			return result
		case <-ctx.Done():
			return machost.Result{Outcome: machost.OutcomeFailed, Err: ctx.Err()}
		}
	}
}

func (b *bench) secret(name, key, value string) {
	b.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kit.SystemNamespace, Name: name, Annotations: map[string]string{"written": time.Now().String()}}, StringData: map[string]string{key: value}}
	err := b.admin.Create(b.t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = b.admin.Update(b.t.Context(), secret)
	}
	require.NoError(b.t, err)
}

func (b *bench) config(name, text string) {
	b.t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}, Data: map[string]string{"host.yaml": text}}
	err := b.admin.Create(b.t.Context(), config)
	if apierrors.IsAlreadyExists(err) {
		err = b.admin.Update(b.t.Context(), config)
	}
	require.NoError(b.t, err)
}

func (b *bench) newMac(name string, change ...func(*v1alpha1.MacHost)) *v1alpha1.MacHost {
	mac := &v1alpha1.MacHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: v1alpha1.MacHostSpec{
			Address: name + ".example.com", SSHKeySecretRef: v1alpha1.SecretKey{Name: keySecret, Key: "id"},
			PasswordSecretRef:            &v1alpha1.SecretKey{Name: passwordSecret, Key: "password"},
			BootstrapKubeconfigSecretRef: &v1alpha1.SecretKey{Name: kubeconfigSecret, Key: "kubeconfig"},
			ConfigRef:                    &v1alpha1.ConfigMapKey{Name: "fleet"}, NodeName: b.node(name),
		},
	}
	for _, c := range change {
		c(mac)
	}
	return mac
}

func (b *bench) mac(name string, change ...func(*v1alpha1.MacHost)) {
	b.t.Helper()
	require.NoError(b.t, b.admin.Create(b.t.Context(), b.newMac(name, change...)))
}

func (b *bench) get(name string) *v1alpha1.MacHost {
	b.t.Helper()
	var mac v1alpha1.MacHost
	require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: name}, &mac))
	return &mac
}

func (b *bench) edit(name string, change func(*v1alpha1.MacHost)) {
	b.t.Helper()
	mac := b.get(name)
	base := mac.DeepCopy()
	change(mac)
	require.NoError(b.t, b.admin.Patch(b.t.Context(), mac, client.MergeFrom(base)))
}

// node is the name of a Mac's Node: Nodes belong to no namespace, and tests share them.
func (b *bench) node(mac string) string { return mac + "-" + b.namespace }

// register makes a Mac's Node, as its agent would.
func (b *bench) register(mac string) *corev1.Node {
	b.t.Helper()
	return b.env.RegisterNode(b.t, b.node(mac), func(n *corev1.Node) {
		n.Labels[corev1.LabelOSStable] = "darwin"
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: runnerpod.TaintMacOS, Effect: corev1.TaintEffectNoSchedule})
	})
}

func (b *bench) nodeOf(mac string) *corev1.Node {
	b.t.Helper()
	var node corev1.Node
	require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Name: b.node(mac)}, &node))
	return &node
}

func (b *bench) cordonedByUs(mac string) bool {
	node := b.nodeOf(mac)
	return node.Spec.Unschedulable && node.Annotations[nodes.AnnotationCordonedBy] == b.namespace+"/"+mac
}

// personCordons changes what kubectl cordon and uncordon change.
func (b *bench) personCordons(mac string, on bool) {
	b.t.Helper()
	patch := `{"spec":{"unschedulable":false}}`
	if on {
		patch = `{"spec":{"unschedulable":true}}`
	}
	require.NoError(b.t, b.admin.Patch(b.t.Context(), b.nodeOf(mac), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// runner puts a runner's pod onto a Mac's Node, and returns how to end it.
func (b *bench) runner(mac string) (end func()) {
	b.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "runner-", Namespace: b.namespace, Labels: map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: "none"}},
		Spec: corev1.PodSpec{
			NodeName: b.node(mac), AutomountServiceAccountToken: new(bool), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: runnerpod.ContainerRunner, Image: "none"}},
		},
	}
	require.NoError(b.t, b.admin.Create(b.t.Context(), pod))
	kubelet := b.env.Kubelet(b.t)
	return func() {
		pod.Status.Phase = corev1.PodSucceeded
		require.NoError(b.t, kubelet.Status().Update(b.t.Context(), pod))
	}
}

func (b *bench) state(mac string) (machost.State, string) {
	c := apimeta.FindStatusCondition(b.get(mac).Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return "", ""
	}
	return machost.State(c.Reason), c.Message
}

func (b *bench) condition(mac, kind string) metav1.Condition {
	if c := apimeta.FindStatusCondition(b.get(mac).Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// is waits until a host is in a state, while time passes, and returns why it is.
func (b *bench) is(mac string, state machost.State, pace ...time.Duration) string {
	b.t.Helper()
	why := ""
	b.eventually(mac+" is "+string(state), func() bool {
		for _, by := range pace {
			b.pace(mac, by)
		}
		is, message := b.state(mac)
		why = message
		return is == state
	})
	return why
}

func (b *bench) eventually(what string, condition func() bool) {
	b.t.Helper()
	require.Eventually(b.t, condition, patience, interval, what)
}

// pass advances the clock, and reconciles the host.
func (b *bench) pass(mac string, by time.Duration) {
	b.t.Helper()
	b.ahead.Add(int64(by))
	b.nudge(mac)
}

// pace is pass for polling: it does nothing until a pass has ended since its last call. A controller whose every write conflicts makes no
// progress.
func (b *bench) pace(mac string, by time.Duration) {
	b.t.Helper()
	if looks := b.looks(); looks > b.paced {
		b.paced = looks
		b.pass(mac, by)
	}
}

// nudge reconciles a host, by changing an annotation without a meaning.
func (b *bench) nudge(mac string) {
	b.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"test/nudge":"`+time.Now().String()+`"}}}`))
	object := &v1alpha1.MacHost{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: mac}}
	require.NoError(b.t, client.IgnoreNotFound(b.admin.Patch(b.t.Context(), object, patch)))
}

// stays reconciles a host repeatedly as time passes, and checks the condition each time.
func (b *bench) stays(mac string, by time.Duration, condition func()) {
	b.t.Helper()
	for range 20 {
		seen := b.looks()
		b.pass(mac, by)
		b.eventually("looked at again", func() bool { return b.looks() > seen })
		condition()
	}
}

// looks is how often controllers of this process have reconciled hosts.
func (b *bench) looks() float64 {
	b.t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	require.NoError(b.t, err)
	sum := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "controller_runtime_reconcile_total" && m.GetLabel()[0].GetValue() == machost.Name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// metric sums a metric over its labels, or reads the one with a value of a label.
func (b *bench) metric(name, value string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if value == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == value {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (b *bench) events(reason string) []eventsv1.Event {
	b.t.Helper()
	var list eventsv1.EventList
	require.NoError(b.t, b.admin.List(b.t.Context(), &list, client.InNamespace(b.namespace)))
	var found []eventsv1.Event
	for _, e := range list.Items {
		if reason == "" || e.Reason == reason {
			found = append(found, e)
		}
	}
	return found
}

func (b *bench) describe() {
	var macs v1alpha1.MacHostList
	_ = b.admin.List(context.Background(), &macs, client.InNamespace(b.namespace))
	for _, mac := range macs.Items {
		b.t.Logf("%s generation %d: %+v", mac.Name, mac.Generation, mac.Status)
	}
	b.t.Logf("attempts: %d; log:\n%s", b.macs.count(), b.log.String())
}

// secretsIn finds what is secret in a text.
func (b *bench) secretsIn(text string) []string {
	var found []string
	for what, secret := range map[string]string{"the password": password, "the token": token, "the SSH key": b.keyLine} {
		if strings.Contains(text, secret) {
			found = append(found, what)
		}
	}
	return found
}

// nothingLeaked searches all that the controller has written for secrets (HOST-6).
func (b *bench) nothingLeaked() {
	b.t.Helper()
	var macs v1alpha1.MacHostList
	var events eventsv1.EventList
	var nodeList corev1.NodeList
	require.NoError(b.t, b.admin.List(context.Background(), &macs, client.InNamespace(b.namespace)))
	require.NoError(b.t, b.admin.List(context.Background(), &events))
	require.NoError(b.t, b.admin.List(context.Background(), &nodeList))
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	written, err := json.Marshal([]any{macs, events, nodeList, families})
	require.NoError(b.t, err)
	require.Empty(b.t, b.secretsIn(string(written)))
	require.Empty(b.t, b.secretsIn(b.log.String()))
}
