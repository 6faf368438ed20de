package prepull

import (
	"maps"
	"slices"
)

// State is how far the present images are on a node.
type State int

// The states of a node that pods of the pool can run on.
const (
	// Absent: no pod pulls the present images there yet.
	Absent State = iota + 1
	// Pulling: a pod does, and is not ready.
	Pulling
	// Failed: a pod does, and reports a problem.
	Failed
	// Present: the images are there.
	Present
)

// Pod is one pre-pull pod.
type Pod struct {
	// Node that it is for, also before the scheduler has bound it.
	Node string
	// Images names the images that it pulls.
	Images string
	// Ready: all of them are on its node.
	Ready bool
	// Leaving: it is being deleted. What it has shown may not hold any longer.
	Leaving bool
	// Problem is why it is not ready, in the words of the kubelet or the scheduler; empty while nothing has failed.
	Problem string
}

// Set is what is known of one pool's nodes and pre-pull pods. A change costs what is on one node, a change of the images what there are of
// nodes. It is not safe for concurrent use.
type Set struct {
	images string
	hosts  map[string]string // the nodes that pods of the pool can run on, and their label kubernetes.io/hostname
	pods   map[string]Pod
	on     map[string]map[string]bool // names of pods by node
	states map[string]State           // of those nodes, while images are wanted
	counts map[State]int
}

// NewSet returns a set that wants no images.
func NewSet() *Set {
	return &Set{hosts: map[string]string{}, pods: map[string]Pod{}, on: map[string]map[string]bool{}, states: map[string]State{}, counts: map[State]int{}}
}

// Want sets which images should be on the nodes; empty for none. It reports whether they are others than before.
func (s *Set) Want(images string) bool {
	if s.images == images {
		return false
	}
	s.images = images
	for node := range s.hosts {
		s.judge(node)
	}
	return true
}

// PutNode notes that pods of the pool can run on a node, whose hostname label is that. It reports whether that matters.
func (s *Set) PutNode(node, host string) bool {
	s.hosts[node] = host
	return s.judge(node)
}

// DropNode notes that pods of the pool cannot run on a node, or that it is gone. It reports whether that matters.
func (s *Set) DropNode(node string) bool {
	delete(s.hosts, node)
	return s.judge(node)
}

// Nodes that pods of the pool can run on.
func (s *Set) Nodes() []string { return slices.Sorted(maps.Keys(s.hosts)) }

// Pods is how many pre-pull pods there are.
func (s *Set) Pods() int { return len(s.pods) }

// PutPod notes what a pre-pull pod shows, and returns the nodes on which the images have become present, missing or impossible to pull.
func (s *Set) PutPod(name string, pod Pod) []string {
	old, known := s.pods[name]
	if known && old == pod {
		return nil
	}
	var changed []string
	if known && old.Node != pod.Node {
		changed = s.DropPod(name)
	}
	s.pods[name] = pod
	if s.on[pod.Node] == nil {
		s.on[pod.Node] = map[string]bool{}
	}
	s.on[pod.Node][name] = true
	return s.turned(pod.Node, changed)
}

// DropPod forgets a pre-pull pod, and returns nodes as PutPod does. Without the pod its node may remove the images at any time.
func (s *Set) DropPod(name string) []string {
	old, known := s.pods[name]
	if !known {
		return nil
	}
	delete(s.pods, name)
	if delete(s.on[old.Node], name); len(s.on[old.Node]) == 0 {
		delete(s.on, old.Node)
	}
	return s.turned(old.Node, nil)
}

func (s *Set) turned(node string, changed []string) []string {
	if s.judge(node) {
		changed = append(changed, node)
	}
	return changed
}

// shown is the state as far as anything depends on it.
func shown(state State) State {
	if state == Pulling {
		return Absent
	}
	return state
}

// Lacks reports whether a roll must wait on a node: pods of the pool can run there, and the images are not known to be there. Where no new
// pod can run, nothing is waited for.
func (s *Set) Lacks(node string) bool {
	state := s.states[node]
	return state != 0 && state != Present
}

// State of a node; 0 for one that no pods of the pool can run on, and while no images are wanted.
func (s *Set) State(node string) State { return s.states[node] }

// judge brings the state of a node up to date, and reports whether a plan or a condition depends on the change.
func (s *Set) judge(node string) bool {
	before, after := s.states[node], s.stateOf(node)
	if before == after {
		return false
	}
	if before != 0 {
		s.counts[before]--
	}
	if after == 0 {
		delete(s.states, node)
	} else {
		s.counts[after]++
		s.states[node] = after
	}
	return shown(before) != shown(after)
}

// stateOf is the best that a pod of the present images shows: while a DaemonSet replaces a pod, a node can have two.
func (s *Set) stateOf(node string) State {
	if _, runs := s.hosts[node]; !runs || s.images == "" {
		return 0
	}
	best := Absent
	for name := range s.on[node] {
		switch pod := s.pods[name]; {
		case pod.Images != s.images || pod.Leaving:
		case pod.Ready:
			best = max(best, Present)
		case pod.Problem != "":
			best = max(best, Failed)
		default:
			best = max(best, Pulling)
		}
	}
	return best
}
