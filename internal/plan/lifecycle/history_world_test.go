package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// registration is a runner's at GitHub.
type registration int

const (
	unregistered registration = iota
	alive
	gone
)

// machine is one node. A lost one has no object; its pods may be dead or continue unseen.
type machine struct{ cordoned, lost, dead bool }

// pod is one runner: its true state, which no component sees, and what the API server shows of it.
type pod struct {
	name, uid string
	node      *machine
	broken    bool // it will never be able to take work
	foreign   bool // another client made it, under a name of ours

	booted    bool
	polling   bool // its poller asks for work
	jit       bool // what it needs to register has reached it
	executing bool
	ended     bool
	reg       registration

	shown view
}

// view is what the API server shows of a pod.
type view struct {
	name, uid, hash        string
	version                int
	node                   *machine
	created, placed, ready time.Time
	deleting               time.Time
	signs                  Signs
	defect                 bool
	ended                  bool
}

// works reports whether a job may run in it, now or whenever GitHub assigns one.
func (p *pod) works() bool { return p.jit && p.reg == alive }

// world is a cluster, a server with its ledger, GitHub, and a controller.
type world struct {
	now, latest time.Time
	step        int
	made        int
	nodes       []*machine
	pods        map[string]*pod // what the API server has, by name

	rows    map[string]fleet.ClaimState // the ledger, by UID
	backup  map[string]fleet.ClaimState
	winner  map[string]fleet.ClaimEvent // who owns a pod by the words that were given out, as long as no row was lost
	outage  bool                        // the server cannot be reached
	held    bool                        // after a restore: nothing is dispatched or granted until the pods' signs are in
	answers map[string]lastAnswer       // the fence's, by UID

	wish     Wish
	ctl      controller
	broken   map[string]string // the first violation of each rule, by id
	rollSeen int               // plans that roll serving runners
	story    []string          // what has happened
}

type lastAnswer struct {
	step    int
	verdict Verdict
	grants  int // how often it was granted
}

func newWorld() *world {
	w := &world{
		now: t0, latest: t0, pods: map[string]*pod{}, rows: map[string]fleet.ClaimState{},
		winner: map[string]fleet.ClaimEvent{}, answers: map[string]lastAnswer{}, broken: map[string]string{},
		nodes: []*machine{{}, {}, {}},
		wish:  Wish{Desired: 4, TemplateHash: "t0", MaxUnavailable: 1, LeaveTimeout: 5 * time.Minute},
	}
	w.ctl.restart(w)
	return w
}

// violate notes that a rule does not hold.
func (w *world) violate(id, format string, args ...any) {
	if w.broken[id] == "" {
		w.broken[id] = fmt.Sprintf(format, args...)
	}
}

// which returns the pods that pass, by name.
func (w *world) which(pass func(*pod) bool) []*pod {
	var found []*pod
	for _, p := range w.pods {
		if pass(p) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *pod) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return found
}

func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	if w.now.After(w.latest) {
		w.latest = w.now
	}
}

// newPod makes a pod of which nothing has happened yet.
func (w *world) newPod(name, hash string) *pod {
	w.made++
	p := &pod{name: name, uid: fmt.Sprintf("u%04d", w.made)}
	p.shown = view{name: name, uid: p.uid, hash: hash, version: w.made, created: w.now}
	w.pods[name] = p
	return p
}

// change changes what the API server shows of a pod.
func (w *world) change(p *pod, change func(*view)) {
	before := p.shown
	if change(&p.shown); p.shown != before {
		w.made++
		p.shown.version = w.made
	}
}

// place binds a pod to the first node that takes it.
func (w *world) place(p *pod, on *machine) {
	p.node = on
	w.change(p, func(v *view) { v.placed, v.node = w.now, on })
}

// boot starts a pod's containers.
func (w *world) boot(p *pod) {
	if p.broken {
		w.change(p, func(v *view) { v.defect = true })
		return
	}
	p.booted, p.polling = true, true
}

// kubelet brings what the API server shows of a pod in line with its true state, and stops what is being deleted: a job
// may finish. A node that is gone has no kubelet; the garbage collector deletes those of its pods that are being deleted.
func (w *world) kubelet(p *pod) {
	if !p.shown.deleting.IsZero() && !p.works() {
		p.ended, p.polling = true, false
		delete(w.pods, p.name)
		return
	}
	if p.node != nil && p.node.lost {
		return
	}
	w.change(p, func(v *view) {
		if p.booted && v.ready.IsZero() {
			v.ready = w.now
		}
		v.ended = p.ended
		v.signs.PollerEnded = p.booted && !p.polling
		v.signs.NotReady = p.jit && !p.ended
	})
}

// synced reports whether the API server shows every pod's true state, as far as it can be known.
func (w *world) synced() bool {
	for _, p := range w.pods {
		v := p.shown
		if p.node != nil && p.node.lost {
			continue
		}
		if v.ended != p.ended || v.signs.PollerEnded != (p.booted && !p.polling) || v.signs.NotReady != (p.jit && !p.ended) {
			return false
		}
	}
	return true
}

// finish ends a pod's runner; its registration goes with it.
func (w *world) finish(p *pod) {
	p.executing, p.ended, p.polling = false, true, false
	if p.reg == alive {
		p.reg = gone
	}
}

// free are the nodes that take pods.
func (w *world) free() []*machine {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(m *machine) bool { return m.cordoned })
}

// lose removes a node's object and adds another node. The pods on it die with it, or continue.
func (w *world) lose(at int, dead bool) {
	node := w.nodes[at]
	node.lost, node.dead, w.nodes[at] = true, dead, &machine{}
	for _, p := range w.pods {
		if p.node == node && dead {
			p.executing, p.polling = false, false
		}
	}
}

// remove is the API server's deletion of a pod, for us.
func (w *world) remove(observed view) error {
	p, exists := w.pods[observed.name]
	if !exists {
		return nil
	}
	if p.uid != observed.uid || p.shown.version != observed.version {
		return errConflict
	}
	w.judge(p)
	if p.shown.ended || p.node != nil && p.node.lost {
		delete(w.pods, p.name)
		return nil
	}
	w.change(p, func(v *view) { v.deleting = w.now })
	return nil
}

// judge holds a deletion of ours against the rules.
func (w *world) judge(p *pod) {
	last := w.answers[p.uid]
	if !p.shown.ended && (last.step != w.step || last.verdict != Granted || last.grants < 2) {
		w.violate("EXCL-2", "%s is deleted without a grant, and another right before", p.name)
	}
	if !p.shown.ended && (w.outage || w.held) {
		w.violate("EXCL-3", "%s is deleted while the fence is unknown", p.name)
	}
	if p.works() {
		w.violate("EXCL-4", "%s is deleted and has a job", p.name)
	}
}
