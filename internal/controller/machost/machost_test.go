package machost_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	host "github.com/bullpen-ci/bullpen/internal/machost"
)

func TestMacHost_IsPreparedAndBecomesReady(t *testing.T) {
	b := newBench(t)
	b.macs.do(func(_ context.Context, _ int, r machost.Request) machost.Result {
		for _, phase := range []host.Phase{host.PhaseApplying, host.PhaseApplied} {
			r.Events(host.Event{Step: "auto-login", Phase: phase, Message: "write /etc/kcpassword"})
		}
		r.Events(host.Event{Step: "tart", Phase: host.PhaseUnchanged})
		return succeeded
	})
	b.mac("one", func(m *v1alpha1.MacHost) { m.Spec.Pool, m.Spec.NodeIP = "xcode", "10.0.0.21" })
	require.Contains(t, b.is("one", machost.StateNodeMissing), "Node does not exist")
	r := b.macs.requests()[0]
	require.Equal(t, "one.example.com:22", r.Address)
	require.Equal(t, "ci", r.User)
	require.Empty(t, r.HostKey, "the first key is trusted")
	require.Equal(t, password, r.Secrets.Password.Reveal())
	require.Contains(t, r.Secrets.BootstrapKubeconfig.Reveal(), token)
	require.Equal(t, "one", r.Config.Hostname)
	require.Equal(t, b.node("one"), r.Config.Node.Name)
	require.Equal(t, "10.0.0.21", r.Config.Node.IP)
	require.Len(t, r.Config.Node.Labels, 2)
	require.Equal(t, "xcode", r.Config.Node.Labels[v1alpha1.LabelMacPool])
	require.Regexp(t, "^[0-9a-f]{32}$", r.Config.Node.Labels[v1alpha1.LabelMacAddress])

	b.register("one")
	b.is("one", machost.StateReady)
	status := b.get("one").Status
	require.Equal(t, fingerprint, status.HostKey)
	require.NotEmpty(t, status.AppliedHash)
	require.NotNil(t, status.AppliedTime)
	require.Equal(t, b.node("one"), status.NodeName)
	require.Zero(t, status.Attempts)
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionBootstrapped, "step/auto-login", "step/tart"} {
		require.Equal(t, metav1.ConditionTrue, b.condition("one", kind).Status, kind)
	}
	require.Equal(t, "write /etc/kcpassword", b.condition("one", "step/auto-login").Message)
	require.Empty(t, b.condition("one", v1alpha1.ConditionDrained).Type)
	require.EqualValues(t, 1, b.metric("bullpen_machost_hosts", "Ready"))
	require.EqualValues(t, 1, b.metric("bullpen_machost_attempts_total", "Succeeded"))

	version := b.get("one").ResourceVersion
	b.restart()
	b.eventually("reconciled by another controller", func() bool { return b.metric("bullpen_machost_hosts", "Ready") == 1 })
	require.Equal(t, version, b.get("one").ResourceVersion, "nothing is written of a host that is well")
	require.Equal(t, 1, b.macs.count())
}

// Each reason to apply again leads to one attempt, and nothing else does.
func TestMacHost_IsAppliedAgainWhenWhatIsWantedChanges(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"one", "two"} {
		b.register(name)
		b.mac(name)
		b.is(name, machost.StateReady)
	}
	b.eventually("both prepared", func() bool { return b.macs.count() == 2 })
	grows := func(what string, by int) {
		t.Helper()
		b.eventually(what, func() bool { return b.macs.count() >= by })
		for _, name := range []string{"one", "two"} {
			b.is(name, machost.StateReady)
		}
		require.Equal(t, by, b.macs.count(), what)
	}
	b.config("fleet", "user: ci\ndhcpLeaseSeconds: 900\n")
	grows("the configuration of all", 4)
	require.Equal(t, fingerprint, b.macs.requests()[3].HostKey, "what was seen first is held to")
	b.edit("one", func(m *v1alpha1.MacHost) { m.Annotations = map[string]string{v1alpha1.AnnotationReapply: "today"} })
	grows("the annotation of one", 5)
	b.edit("one", func(m *v1alpha1.MacHost) { m.Spec.Hostname = "other" })
	grows("what is of one alone", 6)
	b.secret(passwordSecret, "password", password)
	b.pass("one", time.Minute)
	b.pass("two", time.Minute)
	grows("a Secret", 8)
	b.stop()
	b.binary = "2222"
	b.start()
	grows("the binary of another release", 10)

	b.edit("one", func(m *v1alpha1.MacHost) { m.Labels = map[string]string{"a": "b"} })
	b.config("unrelated", "user: somebody\n")
	b.stays("one", 10*time.Minute, func() { require.Equal(t, 10, b.macs.count()) })
}

// An update of macOS writes its own /etc/pf.conf, and programs turn pf off.
func TestMacHost_IsCheckedOnceADay(t *testing.T) {
	b := newBench(t)
	b.ready("one")
	b.macs.returns(succeeded)
	b.stays("one", time.Hour, func() { require.Zero(t, b.macs.count()) })
	b.pass("one", 5*time.Hour)
	b.eventually("checked", func() bool { return b.macs.count() == 1 })
	require.True(t, b.macs.requests()[0].Hold, "a machine may start at any time")
	b.is("one", machost.StateReady)
	b.stays("one", time.Hour, func() { require.Equal(t, 1, b.macs.count()) })
}

func TestMacHost_IsAppliedAgainWhenItsNodeHasVanished(t *testing.T) {
	b := newBench(t)
	node := b.register("one")
	b.mac("one")
	b.is("one", machost.StateReady)
	require.NoError(t, b.admin.Delete(t.Context(), node))
	b.is("one", machost.StateNodeMissing)
	b.stays("one", time.Second, func() { require.Equal(t, 1, b.macs.count(), "its agent registers it again (NODE-8)") })
	b.ahead.Add(int64(4 * time.Minute))
	b.nudge("one")
	b.eventually("prepared again", func() bool { return b.macs.count() == 2 })
	b.register("one")
	b.is("one", machost.StateReady)
	require.Zero(t, b.get("one").Status.Attempts)
	require.Nil(t, b.get("one").Status.NodeMissingSince)
}

func TestMacHost_FailuresBackOffUpToACap(t *testing.T) {
	b := newBench(t)
	b.macs.do(func(_ context.Context, _ int, r machost.Request) machost.Result {
		r.Events(host.Event{Step: "tart", Phase: host.PhaseFailed, File: "/usr/local", Message: "the disk is full", Remedy: "Make room."})
		return failed(machost.OutcomeFailed, "step tart: the disk is full. Make room.")
	})
	b.mac("one")
	require.Contains(t, b.is("one", machost.StateBackingOff), "Make room.")
	require.Equal(t, "/usr/local: the disk is full. Make room.", b.condition("one", "step/tart").Message)
	b.stays("one", time.Second/2, func() { require.Equal(t, 1, b.macs.count(), "the first pause is half a minute") })
	require.Contains(t, b.is("one", machost.StateFailed, time.Minute), "5 attempts failed")
	require.Equal(t, 5, b.macs.count())
	b.stays("one", time.Minute, func() { require.Equal(t, 5, b.macs.count()) })
	require.Len(t, b.events("Failed"), 1)
	require.EqualValues(t, 1, b.metric("bullpen_machost_hosts", "Failed"))

	b.macs.returns(succeeded)
	b.edit("one", func(m *v1alpha1.MacHost) { m.Spec.Hostname = "other" })
	b.is("one", machost.StateNodeMissing)
	require.Empty(t, b.get("one").Status.LastError)
}

func TestMacHost_AfterAnHourAFailedOneIsTriedAgain(t *testing.T) {
	b := newBench(t)
	b.macs.returns(failed(machost.OutcomeFailed, "no"))
	b.mac("one")
	b.is("one", machost.StateFailed, 5*time.Minute)
	b.macs.returns(succeeded)
	b.is("one", machost.StateNodeMissing, 10*time.Minute)
}

// Accounts get locked: neither time, nor a restart, nor another configuration is a reason to try a password again.
func TestMacHost_AWrongPasswordIsNeverTriedAgain(t *testing.T) {
	b := newBench(t)
	b.macs.returns(failed(machost.OutcomeWrongPassword, "obtaining sudo: the host refused the only attempt"))
	b.mac("one")
	require.Contains(t, b.is("one", machost.StateWrongPassword), "refused the only attempt")
	once := func() { require.Equal(t, 1, b.macs.count()) }
	b.stays("one", time.Hour, once)
	b.restart()
	b.config("fleet", "user: ci\ndhcpLeaseSeconds: 900\n")
	b.edit("one", func(m *v1alpha1.MacHost) { m.Annotations = map[string]string{v1alpha1.AnnotationReapply: "now"} })
	b.stays("one", time.Hour, once)
	b.is("one", machost.StateWrongPassword)

	b.macs.returns(succeeded)
	b.secret(passwordSecret, "password", password)
	b.is("one", machost.StateNodeMissing, time.Minute)
	require.Equal(t, 1, b.macs.count())
}

// A host key that was trusted first, or pinned, is not replaced by one that appears later.
func TestMacHost_AChangedHostKeyIsHeldTo(t *testing.T) {
	b := newBench(t)
	b.register("one")
	b.mac("one")
	b.is("one", machost.StateReady)
	other := "SHA256:" + strings.Repeat("b", 43)
	b.macs.returns(machost.Result{Outcome: machost.OutcomeHostKeyChanged, HostKey: other, Err: &hostKeyError{}})
	b.config("fleet", "user: ci\ndhcpLeaseSeconds: 900\n")
	require.Contains(t, b.is("one", machost.StateHostKeyChanged), "spec.hostKey")
	require.Equal(t, fingerprint, b.get("one").Status.HostKey)
	require.Equal(t, metav1.ConditionFalse, b.condition("one", v1alpha1.ConditionReachable).Status)
	b.restart()
	b.stays("one", time.Hour, func() { require.Equal(t, 1, b.macs.count()) })

	b.macs.returns(machost.Result{Outcome: machost.OutcomeSucceeded, HostKey: other})
	b.edit("one", func(m *v1alpha1.MacHost) { m.Spec.HostKey = other })
	b.is("one", machost.StateReady)
	require.Equal(t, other, b.macs.requests()[0].HostKey)
	require.Equal(t, other, b.get("one").Status.HostKey)
}

type hostKeyError struct{}

func (hostKeyError) Error() string { return "the host key is another one" }

func TestMacHost_AMacThatDoesNotAnswerIsTriedForEver(t *testing.T) {
	b := newBench(t)
	b.macs.returns(failed(machost.OutcomeUnreachable, "nobody answers"))
	b.mac("one")
	b.eventually("more often than a failed one", func() bool {
		b.pace("one", 15*time.Minute)
		return b.macs.count() > 8
	})
	require.Contains(t, b.is("one", machost.StateUnreachable), "nobody answers")
	require.Equal(t, metav1.ConditionFalse, b.condition("one", v1alpha1.ConditionReachable).Status)
	b.macs.returns(succeeded)
	b.is("one", machost.StateNodeMissing, 20*time.Minute)
	require.Equal(t, metav1.ConditionTrue, b.condition("one", v1alpha1.ConditionReachable).Status)
}

func TestMacHost_OnlySoManyAtOnce(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.attempts = 2
	b.start()
	done := make(chan struct{})
	b.macs.do(until(done, succeeded))
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		b.mac(name)
	}
	b.eventually("two are worked on, the others wait", func() bool { return b.metric("bullpen_machost_hosts", "Queued") == 3 })
	require.EqualValues(t, 2, b.metric("bullpen_machost_attempts_running", ""))
	close(done)
	for _, name := range names {
		b.is(name, machost.StateNodeMissing)
	}
	require.Equal(t, 2, b.macs.most)
	require.Equal(t, 5, b.macs.count())
}

func TestMacHost_PausedIsLeftAlone(t *testing.T) {
	b := newBench(t)
	b.mac("one", func(m *v1alpha1.MacHost) { m.Spec.Paused = true })
	b.is("one", machost.StatePaused)
	b.stays("one", time.Hour, func() { require.Zero(t, b.macs.count()) })
	b.edit("one", func(m *v1alpha1.MacHost) { m.Spec.Paused = false })
	b.eventually("prepared", func() bool { return b.macs.count() == 1 })
}

// A problem that needs a person is reported, and once it is solved the Mac is prepared without further action.
func TestMacHost_SaysWhatIsMissing(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct {
		change func(*v1alpha1.MacHost)
		state  machost.State
		says   string
	}{
		"no-config":   {func(m *v1alpha1.MacHost) { m.Spec.ConfigRef.Name = "missing" }, machost.StateInvalid, "the ConfigMap missing in namespace " + b.namespace + " does not exist: create it"},
		"no-key":      {func(m *v1alpha1.MacHost) { m.Spec.ConfigRef.Key = "other" }, machost.StateInvalid, "has no key other: add it"},
		"unknown":     {inline(`{"user": "ci", "colour": "red"}`), machost.StateInvalid, "colour"},
		"bad-network": {inline(`{"user": "ci", "egress": {"allow": ["10.0.0.0/33"]}}`), machost.StateInvalid, "egress.allow[0]"},
		"of-one":      {inline(`{"user": "ci", "hostname": "x"}`), machost.StateInvalid, "spec.hostname"},
		"address":     {inline(`{"user": "ci", "node": {"labels": {"bullpen.dev/mac-address": "x"}}}`), machost.StateInvalid, "spec.address"},
		"no-secret":   {func(m *v1alpha1.MacHost) { m.Spec.PasswordSecretRef.Key = "other" }, machost.StateSecretMissing, "has no key other: add it"},
		"forbidden":   {func(m *v1alpha1.MacHost) { m.Spec.SSHKeySecretRef.Name = "bullpen-github" }, machost.StateSecretForbidden, "macHosts.secrets"},
		"no-ssh-key": {func(m *v1alpha1.MacHost) {
			m.Spec.SSHKeySecretRef = v1alpha1.SecretKey{Name: passwordSecret, Key: "password"}
		}, machost.StateInvalid, "ssh-keygen"},
		"another-key": {func(m *v1alpha1.MacHost) {
			m.Spec.BootstrapKubeconfigSecretRef = &v1alpha1.SecretKey{Name: keySecret, Key: "id"}
		}, machost.StateInvalid, "is not a kubeconfig"},
		"other-user": {func(m *v1alpha1.MacHost) { m.Spec.User = "admin" }, machost.StateInvalid, "remove spec.user"},
	} {
		t.Run(name, func(t *testing.T) {
			b.mac(name, c.change)
			require.Contains(t, b.is(name, c.state), c.says)
			require.Zero(t, b.macs.count())
			require.NoError(t, b.admin.Delete(t.Context(), b.get(name)))
		})
	}
	b.mac("late", func(m *v1alpha1.MacHost) { m.Spec.ConfigRef.Name = "late" })
	b.is("late", machost.StateInvalid)
	b.config("late", "user: ci\n")
	b.eventually("prepared", func() bool { return b.macs.count() == 1 })
}

func inline(config string) func(*v1alpha1.MacHost) {
	return func(m *v1alpha1.MacHost) {
		m.Spec.ConfigRef, m.Spec.Config = nil, &runtime.RawExtension{Raw: []byte(config)}
	}
}

func TestMacHost_TwoOfOneNodeAreNotBothPrepared(t *testing.T) {
	b := newBench(t)
	b.mac("one")
	b.is("one", machost.StateNodeMissing)
	b.mac("two", func(m *v1alpha1.MacHost) { m.Spec.NodeName = b.node("one") })
	require.Contains(t, b.is("two", machost.StateConflict), "MacHost one already uses the Node")
	b.mac("three", func(m *v1alpha1.MacHost) { m.Spec.Address = "one.example.com" })
	require.Contains(t, b.is("three", machost.StateConflict), "MacHost one already uses the address")
	require.Equal(t, 1, b.macs.count())
}

func TestMacHost_RefusesContradictionsInSentences(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		change func(*v1alpha1.MacHost)
		says   string
	}{
		{func(m *v1alpha1.MacHost) { m.Spec.ConfigRef = nil }, "set exactly one of configRef"},
		{func(m *v1alpha1.MacHost) { m.Spec.Config = &runtime.RawExtension{Raw: []byte(`{}`)} }, "set exactly one of configRef"},
		{func(m *v1alpha1.MacHost) { m.Spec.Address = "one.example.com:22" }, "without a port: set port"},
		{func(m *v1alpha1.MacHost) { m.Spec.NodeIP = "example.com" }, "nodeIP must be an IP address"},
		{func(m *v1alpha1.MacHost) { m.Name = "with.dots" }, "because the Mac and its Node are named after it"},
		{func(m *v1alpha1.MacHost) { m.Spec.HostKey = "abc" }, "spec.hostKey"},
	} {
		mac := b.newMac("wrong", c.change)
		require.ErrorContains(t, b.admin.Create(t.Context(), mac, client.DryRunAll), c.says)
	}
	for _, address := range []string{"10.0.0.1", "2001:db8::1", "mac-1.example.com", "mac"} {
		require.NoError(t, b.admin.Create(t.Context(), b.newMac("right", func(m *v1alpha1.MacHost) { m.Spec.Address = address }), client.DryRunAll))
	}
	b.mac("one", func(m *v1alpha1.MacHost) { m.Spec.Paused, m.Spec.NodeName = true, "" })
	mac := b.get("one")
	renamed := mac.DeepCopy()
	renamed.Spec.NodeName = "other"
	require.ErrorContains(t, b.admin.Patch(t.Context(), renamed, client.MergeFrom(mac)), "nodeName cannot be changed")
}

// HOST-6: a Mac that repeats every secret that it received, in all forms of a text, gets none of them shown.
func TestMacHost_HOST6_NoSecretIsWrittenAnywhere(t *testing.T) {
	b := newBench(t)
	require.Len(t, b.secretsIn(password+token+b.keyLine), 3, "the search finds what there is")
	b.macs.do(func(_ context.Context, _ int, r machost.Request) machost.Result {
		said := strings.Join([]string{r.Secrets.Password.Reveal(), r.Secrets.BootstrapKubeconfig.Reveal(), r.Key.Reveal()}, " ")
		for i, text := range []string{r.Secrets.Password.Reveal(), token, r.Key.Reveal(), said} {
			r.Events(host.Event{Step: "step-" + string(rune('a'+i)), Phase: host.PhaseFailed, Message: "got " + text, File: text, Remedy: text, Changes: []string{text}})
			r.Events(host.Event{Step: text, Phase: host.PhaseFailed})
		}
		return machost.Result{Outcome: machost.OutcomeFailed, HostKey: fingerprint, Err: &tellingError{said}}
	})
	b.mac("one")
	b.is("one", machost.StateBackingOff)
	require.NotEmpty(t, b.condition("one", "step/step-a").Message)
	require.NotEmpty(t, b.get("one").Status.LastError)
	b.eventually("an Event", func() bool { return len(b.events("BackingOff")) > 0 })
	b.nothingLeaked()
}

type tellingError struct{ text string }

func (e *tellingError) Error() string { return e.text }
