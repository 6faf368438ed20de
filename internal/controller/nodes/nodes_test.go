package nodes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

var options = runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}

func testPool(change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"mine"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner:1", NodeSelector: map[string]string{"fleet": "a"}},
		},
	}
	for _, c := range change {
		c(pool)
	}
	return pool
}

func testNode(change ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"fleet": "a", "zone": "z1"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
				corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, c := range change {
		c(node)
	}
	return node
}

func placement(t *testing.T, pool *v1alpha1.RunnerPool, class *nodev1.RuntimeClass) Placement {
	t.Helper()
	p, err := PlacementOf(pool, options, class)
	require.NoError(t, err)
	return p
}

func zoneAffinity(zones ...string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: zones}},
		}}},
	}}
}

func TestBelongs_ByNodeSelectorAndRequiredAffinity(t *testing.T) {
	for name, c := range map[string]struct {
		pool *v1alpha1.RunnerPool
		node *corev1.Node
		want bool
	}{
		"the selector's node":            {testPool(), testNode(), true},
		"another fleet's":                {testPool(), testNode(func(n *corev1.Node) { n.Labels["fleet"] = "b" }), false},
		"no selector: every node":        {testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Template.NodeSelector = nil }), testNode(func(n *corev1.Node) { n.Labels = nil }), true},
		"affinity accepts it":            {testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Template.Affinity = zoneAffinity("z1", "z2") }), testNode(), true},
		"affinity refuses it":            {testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Template.Affinity = zoneAffinity("z2") }), testNode(), false},
		"a cordoned one is of the fleet": {testPool(), testNode(func(n *corev1.Node) { n.Spec.Unschedulable = true }), true},
		"an affinity that cannot be read": {testPool(func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Affinity = zoneAffinity("z1")
			p.Spec.Template.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Operator = "Near"
		}), testNode(), false},
	} {
		require.Equal(t, c.want, placement(t, c.pool, nil).Belongs(c.node), name)
	}
	require.False(t, Placement{}.Belongs(testNode()), "the zero value fits nowhere")
	_, err := PlacementOf(testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "" }), options, nil)
	require.ErrorContains(t, err, "set the runner's image")
}

func TestProblem_SaysWhyNothingCanStart(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
		}
	}
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: effect}} }
	}
	tolerant := testPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "yes"}}
	})
	everything := testPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	unbounded := testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse("0")) })
	cordon := func(n *corev1.Node) {
		n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{unschedulable}
	}
	for name, c := range map[string]struct {
		pool   *v1alpha1.RunnerPool
		change func(*corev1.Node)
		want   string
	}{
		"well":              {testPool(), func(*corev1.Node) {}, ""},
		"being deleted":     {testPool(), func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, "node n1 is being deleted"},
		"cordoned":          {testPool(), cordon, "node n1 is cordoned"},
		"cordon is ignored": {everything, cordon, ""},
		"deletion never is": {everything, func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, "node n1 is being deleted"},
		"nothing said":      {testPool(), func(n *corev1.Node) { n.Status.Conditions = nil }, "node n1 has not reported ready yet"},
		"not ready": {testPool(), func(n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionFalse, "KubeletNotReady"
		}, "node n1 is not ready (KubeletNotReady)"},
		"silent":            {testPool(), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, "node n1 is not ready (no reason given)"},
		"no memory":         {testPool(), condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), "node n1 is short of memory"},
		"no disk":           {testPool(), condition(corev1.NodeDiskPressure, corev1.ConditionTrue), "node n1 is short of disk space"},
		"no process ids":    {testPool(), condition(corev1.NodePIDPressure, corev1.ConditionTrue), "node n1 is short of PIDs"},
		"no pressure":       {testPool(), condition(corev1.NodeDiskPressure, corev1.ConditionFalse), ""},
		"pressure unknown":  {testPool(), condition(corev1.NodeDiskPressure, corev1.ConditionUnknown), ""},
		"a taint":           {testPool(), taint(corev1.TaintEffectNoSchedule), "node n1 has the taint gpu=yes:NoSchedule, which the pool does not tolerate"},
		"an evicting taint": {testPool(), taint(corev1.TaintEffectNoExecute), "node n1 has the taint gpu=yes:NoExecute, which the pool does not tolerate"},
		"a preference only": {testPool(), taint(corev1.TaintEffectPreferNoSchedule), ""},
		"a tolerated taint": {tolerant, taint(corev1.TaintEffectNoSchedule), ""},
		"no disk counted": {testPool(), func(n *corev1.Node) { delete(n.Status.Allocatable, corev1.ResourceEphemeralStorage) },
			"node n1 does not offer ephemeral-storage, which the pool's runners request: enable localStorageCapacityIsolation of its kubelet, or set spec.resources.ephemeralStorage to 0"},
		"none asked for":    {unbounded, func(n *corev1.Node) { delete(n.Status.Allocatable, corev1.ResourceEphemeralStorage) }, ""},
		"another condition": {testPool(), condition("KernelDeadlock", corev1.ConditionTrue), ""},
	} {
		p, node := placement(t, c.pool, nil), testNode(c.change)
		require.Equal(t, c.want, p.Problem(node), name)
		require.Equal(t, c.want == "", p.Usable(node), name)
		trimmed, err := TrimNode(node.DeepCopy())
		require.NoError(t, err)
		require.Equal(t, c.want, p.Problem(trimmed.(*corev1.Node)), name+", trimmed")
	}
}

// A DaemonSet tolerates what Kubernetes adds for it, and otherwise what the pool tolerates.
func TestDaemons_AreWhereADaemonSetHasThem(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	tolerant := testPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	})
	for name, c := range map[string]struct {
		pool   *v1alpha1.RunnerPool
		change func(*corev1.Node)
		want   bool
	}{
		"well":                    {testPool(), func(*corev1.Node) {}, true},
		"another fleet's":         {testPool(), func(n *corev1.Node) { n.Labels["fleet"] = "b" }, false},
		"a taint":                 {testPool(), taint("gpu", corev1.TaintEffectNoSchedule), false},
		"an evicting taint":       {testPool(), taint("gpu", corev1.TaintEffectNoExecute), false},
		"a preference":            {testPool(), taint("gpu", corev1.TaintEffectPreferNoSchedule), true},
		"a tolerated taint":       {tolerant, taint("gpu", corev1.TaintEffectNoSchedule), true},
		"cordoned":                {testPool(), taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), true},
		"short of disk":           {testPool(), taint(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule), true},
		"unreachable":             {testPool(), taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), true},
		"not ready yet":           {testPool(), taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), false},
		"a Mac":                   {testPool(), taint(runnerpod.TaintMacOS, corev1.TaintEffectNoSchedule), false},
		"not ready, by condition": {testPool(), func(n *corev1.Node) { n.Status.Conditions = nil }, true},
	} {
		p, node := placement(t, c.pool, nil), testNode(c.change)
		require.Equal(t, c.want, p.Daemons(node), name)
		trimmed, err := TrimNode(node.DeepCopy())
		require.NoError(t, err)
		require.Equal(t, c.want, p.Daemons(trimmed.(*corev1.Node)), name+", trimmed")
	}
}

func TestSeats_AreTheLeastOfWhatShapeAndOverheadAllow(t *testing.T) {
	class := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "vm"},
		Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"kvm": "true"},
			Tolerations:  []corev1.Toleration{{Key: "kvm", Operator: corev1.TolerationOpExists}},
		},
	}
	inVM := testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Template.RuntimeClassName = ptr.To("vm") })
	require.Equal(t, Room{MilliCPU: 2020, Memory: 4<<30 + 64<<20, Pods: 1, Disk: 10<<30 + 256<<20}, placement(t, testPool(), nil).Pod(), "poller and idle are in it")
	require.Equal(t, Room{MilliCPU: 2520, Memory: 5<<30 + 64<<20, Pods: 1, Disk: 10<<30 + 256<<20}, placement(t, inVM, class).Pod())
	require.Equal(t, placement(t, testPool(), nil).Pod(), placement(t, testPool(), class).Pod(), "another pool's class")

	offer := func(cpu, memory, pods string) *corev1.Node {
		return testNode(func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods),
				corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
			}
		})
	}
	p := placement(t, testPool(), nil)
	require.Equal(t, 3, p.Seats(offer("8", "64Gi", "110")), "CPU: four fit but for the pollers")
	require.Equal(t, 1, p.Seats(offer("64", "8Gi", "110")), "memory")
	require.Equal(t, 5, p.Seats(offer("64", "64Gi", "5")), "pods")
	require.Zero(t, p.Seats(offer("1", "64Gi", "110")))
	require.Zero(t, p.Seats(&corev1.Node{}), "a node that offers nothing")
	require.Equal(t, 3, placement(t, inVM, class).Seats(offer("8", "64Gi", "110")))

	kvm := testNode(func(n *corev1.Node) {
		n.Labels["kvm"], n.Spec.Taints = "true", []corev1.Taint{{Key: "kvm", Effect: corev1.TaintEffectNoSchedule}}
	})
	require.True(t, placement(t, inVM, class).Usable(kvm), "the class's own selector and tolerations count")
	require.False(t, placement(t, inVM, class).Belongs(testNode()))
	require.False(t, placement(t, testPool(), nil).Usable(kvm))
}

// The scheduler counts what runners may write, so a pool's room does as well: a node that is full of runners has disk left for each.
func TestSeats_TEN6_CountTheDiskThatRunnersMayWrite(t *testing.T) {
	node := func(disk string) *corev1.Node {
		return testNode(func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("640Gi"), corev1.ResourcePods: resource.MustParse("110"),
			}
			if disk != "" {
				n.Status.Allocatable[corev1.ResourceEphemeralStorage] = resource.MustParse(disk)
			}
		})
	}
	p := placement(t, testPool(), nil)
	require.Equal(t, 2, p.Seats(node("30Gi")), "three fit but for what their pollers log")
	require.Equal(t, 3, p.Seats(node("31Gi")))
	require.Zero(t, p.Seats(node("")), "the scheduler puts no such pod on a node that does not count its disk")
	trimmed, err := TrimNode(node("30Gi"))
	require.NoError(t, err)
	require.Equal(t, 2, p.Seats(trimmed.(*corev1.Node)))

	more := testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse("20Gi")) })
	require.Equal(t, 1, placement(t, more, nil).Seats(node("31Gi")))
	none := testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse("0")) })
	require.Equal(t, 31, placement(t, none, nil).Seats(node("")), "by CPU")
}

func TestSeats_AlwaysFitAndNoMoreWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, what) }
		room := Room{draw("cpu", -5, 100), draw("memory", -5, 1000), draw("pods", -1, 20), draw("slots", -1, 3), draw("disk", -5, 100)}
		one := Room{draw("one's cpu", 0, 10), draw("one's memory", 0, 100), 1, draw("one's slots", 0, 1), draw("one's disk", 0, 10)}
		n := int64(Seats(room, one))
		fits := func(n int64) bool {
			return n*one.MilliCPU <= max(room.MilliCPU, 0) && n*one.Memory <= max(room.Memory, 0) && n <= max(room.Pods, 0) && n*one.VMs <= max(room.VMs, 0) &&
				n*one.Disk <= max(room.Disk, 0)
		}
		require.True(t, fits(n), "%d", n)
		require.False(t, fits(n+1), "%d", n)
	})
	require.Zero(t, Seats(Room{1, 1, 1, 1, 1}, Room{}))
}

// Two macOS virtual machines is what the licence grants a Mac, and what of it can be used now is what the Mac offers.
func TestProblem_NODE9_AMacWithoutASlotThatCanBeUsedStartsNothing(t *testing.T) {
	pool := testPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Platform, p.Spec.Template.NodeSelector = v1alpha1.PlatformMacOS, nil
	})
	mac := func(slots int64) *corev1.Node {
		return testNode(func(n *corev1.Node) {
			n.Labels[corev1.LabelOSStable] = "darwin"
			n.Spec.Taints = []corev1.Taint{{Key: runnerpod.TaintMacOS, Effect: corev1.TaintEffectNoSchedule}}
			n.Status.Allocatable[runnerpod.ResourceMacOSVM] = *resource.NewQuantity(slots, resource.DecimalSI)
		})
	}
	p := placement(t, pool, nil)
	for slots, want := range map[int64]string{
		0: "node n1 has 0 usable slots for macOS virtual machines; see its conditions", 1: "", 2: "",
	} {
		trimmed, err := TrimNode(mac(slots))
		require.NoError(t, err)
		require.Equal(t, want, p.Problem(trimmed.(*corev1.Node)))
		require.EqualValues(t, slots, p.Seats(trimmed.(*corev1.Node)))
	}
	require.False(t, p.Belongs(testNode()), "Linux nodes are not of the fleet")
	linux := placement(t, testPool(func(p *v1alpha1.RunnerPool) { p.Spec.Template.NodeSelector = nil }), nil)
	require.Contains(t, linux.Problem(mac(2)), runnerpod.TaintMacOS, "nor do Linux runners start on Macs")
	require.False(t, Same(mac(0), mac(1)), "a slot that can be used again is news")
}

func TestTrimNode_KeepsALivingNodeTheSame(t *testing.T) {
	trimmed := func(n *corev1.Node) *corev1.Node {
		object, err := TrimNode(n)
		require.NoError(t, err)
		return object.(*corev1.Node)
	}
	node := testNode(func(n *corev1.Node) {
		n.Annotations = map[string]string{"a": "b"}
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"runner:1"}}}
		n.Status.Allocatable["hugepages-2Mi"] = resource.MustParse("1Gi")
	})
	before := trimmed(node.DeepCopy())
	require.Empty(t, before.Annotations)
	require.Empty(t, before.ManagedFields)
	require.Empty(t, before.Status.Images)
	require.Len(t, before.Status.Allocatable, 4)

	beat := node.DeepCopy()
	beat.ResourceVersion, beat.Status.Conditions[0].LastHeartbeatTime = "2", metav1.Now()
	beat.Status.Images = nil
	require.True(t, Same(before, trimmed(beat)))
	for what, change := range map[string]func(*corev1.Node){
		"cordon":      func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"taint":       func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{unschedulable} },
		"label":       func(n *corev1.Node) { n.Labels["zone"] = "z2" },
		"readiness":   func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
		"allocatable": func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("4") },
		"deletion":    func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
		"another one": func(n *corev1.Node) { n.UID = "other" },
	} {
		changed := node.DeepCopy()
		change(changed)
		require.False(t, Same(before, trimmed(changed)), what)
	}
	other, err := TrimNode("something else")
	require.NoError(t, err)
	require.Equal(t, "something else", other)
}
