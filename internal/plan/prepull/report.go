package prepull

import (
	"maps"
	"slices"
)

// Report is what a pool's conditions say of its images.
type Report struct {
	// Wanted: images are pulled in advance.
	Wanted bool
	// Nodes is how many nodes pods of the pool can run on, Present on how many of them the images are, Failed on how many they cannot be
	// pulled.
	Nodes, Present, Failed int
	// FailedNode is the first of the latter by name, and Problem what its pod says.
	FailedNode, Problem string
}

// Missing is on how many nodes the images are not.
func (r Report) Missing() int { return r.Nodes - r.Present }

// Report says how far the images are.
func (s *Set) Report() Report {
	r := Report{Wanted: s.images != ""}
	if !r.Wanted {
		return r
	}
	r.Nodes, r.Present, r.Failed = len(s.hosts), s.counts[Present], s.counts[Failed]
	if r.Failed == 0 {
		return r
	}
	for node, state := range s.states {
		if state == Failed && (r.FailedNode == "" || node < r.FailedNode) {
			r.FailedNode = node
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.on[r.FailedNode])) {
		if pod := s.pods[name]; pod.Images == s.images && !pod.Leaving && pod.Problem != "" {
			r.Problem = pod.Problem
			break
		}
	}
	return r
}

// MostNames is the maximum number of nodes that a Preference names. It bounds a pod, whatever the size of the cluster.
const MostNames = 64

// Preference is which nodes new runners prefer, by their label kubernetes.io/hostname: those in In, or those not in NotIn. At most one of
// them is set, and none while all nodes are alike.
type Preference struct{ In, NotIn []string }

// Preference names the nodes that have the images, or those that lack them, whichever are fewer. In a large cluster with many of both it
// names some that have them.
func (s *Set) Preference() Preference {
	r := s.Report()
	switch {
	case r.Present == 0 || r.Missing() == 0:
		return Preference{}
	case r.Missing() < r.Present && r.Missing() <= MostNames:
		return Preference{NotIn: s.named(func(state State) bool { return state != Present })}
	default:
		return Preference{In: s.named(func(state State) bool { return state == Present })}
	}
}

// named are the hostname labels of nodes, the first by name. A node without the label cannot be named.
func (s *Set) named(keep func(State) bool) []string {
	var hosts []string
	for node, state := range s.states {
		if host := s.hosts[node]; host != "" && keep(state) {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts[:min(len(hosts), MostNames)]
}
