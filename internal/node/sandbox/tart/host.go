//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bullpen-ci/bullpen/internal/lib/macvms"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// oldest is the first release of Tart that is known to have all that is used here (`exec` and `set --random-serial`, above all).
var oldest = [3]int{2, 28, 0}

// kindTooOld is a failure that this package finds by itself.
const kindTooOld tartcli.Kind = "TooOld"

// Conditions of the node.
const (
	ConditionTartReady  = "TartReady"
	ConditionGUISession = "GUISession"
	ConditionGhostSlots = "GhostSlots"
	ConditionDHCPLeases = "DHCPLeases"
)

// hostState is what is known of the host. Looks and failures write it, Host reads it.
type hostState struct {
	mu      sync.Mutex
	looked  bool
	tart    *tartcli.Error // nil: Tart can be used
	session string         // why there is no GUI session; empty: there is one
	kicks   kicks
	lease   leaseState
}

type leaseState struct {
	known   bool
	seconds int
	err     error
}

func (h *hostState) setSession(there bool, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session = why
	if !there && why == "" {
		h.session = "there is none"
	}
}

// setTart notes whether Tart can be used. A failure that says nothing of Tart itself changes nothing.
func (h *hostState) setTart(failed *tartcli.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tart = failed
}

// Host implements sandbox.HostReporter. A host on which no machine can be started now offers no slot beyond those in use: that is how it takes
// itself out of scheduling (NODE-9), and how it comes back.
func (s *Sandbox) Host() sandbox.HostState {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	now := s.opts.Now()
	healthy := s.state.looked && s.state.tart == nil && s.state.session == ""
	var offered, ghosts int
	s.slots.read(func(l *ledger) { offered, ghosts = l.offered(now, healthy), l.ghosts(now) })
	slots := func(n int) corev1.ResourceList {
		return corev1.ResourceList{runnerpod.ResourceMacOSVM: *resource.NewQuantity(int64(n), resource.DecimalSI)}
	}
	host := sandbox.HostState{OS: "darwin", Arch: "arm64", Capacity: slots(s.opts.Slots), Allocatable: slots(offered)}
	host.Conditions = append(host.Conditions, tartCondition(s.state.looked, s.state.tart), sessionCondition(s.state.looked, s.state.session), ghostCondition(ghosts))
	if s.state.lease.known {
		host.Conditions = append(host.Conditions, leaseCondition(s.state.lease))
	}
	return host
}

// tartCondition is pure, as are those below.
func tartCondition(looked bool, failed *tartcli.Error) sandbox.Condition {
	c := sandbox.Condition{Type: ConditionTartReady, Status: corev1.ConditionTrue, Reason: "TartAnswers"}
	switch {
	case failed != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, string(failed.Kind), failed.Error()
	case !looked:
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NotAskedYet", "Tart has not responded yet"
	}
	return c
}

func sessionCondition(looked bool, missing string) sandbox.Condition {
	c := sandbox.Condition{Type: ConditionGUISession, Status: corev1.ConditionTrue, Reason: "Aqua"}
	switch {
	case missing != "":
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonNoSession, missing
	case !looked:
		c.Status, c.Reason = corev1.ConditionUnknown, "NotAskedYet"
	}
	return c
}

func ghostCondition(ghosts int) sandbox.Condition {
	if ghosts == 0 {
		return sandbox.Condition{Type: ConditionGhostSlots, Status: corev1.ConditionFalse, Reason: "AllSlotsUsable"}
	}
	return sandbox.Condition{
		Type: ConditionGhostSlots, Status: corev1.ConditionTrue, Reason: "TartRefusesFreeSlots",
		Message: fmt.Sprintf("macOS counts %d more virtual machines than exist; restart the host if this persists", ghosts),
	}
}

// longestLease is what a busy host's DHCP server may lend an address for, in seconds. Its net has about 253 of them.
const longestLease = 600

func leaseCondition(l leaseState) sandbox.Condition {
	c := sandbox.Condition{Type: ConditionDHCPLeases, Status: corev1.ConditionTrue, Reason: "LeaseTimeShort"}
	switch {
	case l.err != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "CannotBeRead", l.err.Error()
	case l.seconds > longestLease:
		c.Status, c.Reason = corev1.ConditionFalse, "LeaseTimeTooLong"
		c.Message = fmt.Sprintf("DHCP leases last %d s, and a busy host exhausts its addresses within a day; set DHCPLeaseTimeSecs to %d", l.seconds, longestLease)
	}
	return c
}

// look asks after the host now and then, until Close. first is closed after the first time.
func (s *Sandbox) look(first chan struct{}) {
	tick := time.NewTicker(s.opts.RefreshEvery)
	defer tick.Stop()
	for {
		s.lookOnce(s.ctx)
		if first != nil {
			close(first)
			first = nil
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Sandbox) lookOnce(ctx context.Context) {
	failed := s.askTart(ctx)
	missing := s.lookForSession(ctx)
	seconds, leaseErr := s.opts.LeaseSeconds(ctx)
	if ctx.Err() != nil {
		return
	}
	s.state.mu.Lock()
	s.state.looked, s.state.tart, s.state.session = true, failed, ""
	if missing != nil {
		s.state.session = missing.Error()
	}
	s.state.lease = leaseState{known: !errors.Is(leaseErr, errNoLeases), seconds: seconds, err: leaseErr}
	s.state.mu.Unlock()
	// NODE-9: a host without a session brings it back by itself, without a pod that asks for it: it offers no slot, so none will.
	if missing != nil {
		_ = (session{}).ensure(ctx, s)
	}
	s.sweep(ctx)
}

// askTart finds out whether Tart can be used, and counts what runs.
func (s *Sandbox) askTart(ctx context.Context) *tartcli.Error {
	version, err := s.tart.Version(ctx)
	if err == nil && !version.AtLeast(oldest[0], oldest[1], oldest[2]) {
		return &tartcli.Error{Operation: "asking Tart for its version", Kind: kindTooOld, Message: fmt.Sprintf(
			"%s is older than %d.%d.%d, which is required to run commands in a guest", version.Text, oldest[0], oldest[1], oldest[2])}
	}
	if err == nil {
		err = s.countForeign(ctx)
	}
	var failed *tartcli.Error
	if errors.As(err, &failed) {
		return failed
	}
	return nil
}

// countForeign counts the running machines that are not ours. Tart may call a running machine stopped (tart#967), so locks are checked, too; and it
// lists those of this user only, while licence and kernel count those of the host, so its processes are. They are counted first: a machine
// of ours that ends meanwhile counts as foreign until the next count, and not the other way round.
func (s *Sandbox) countForeign(ctx context.Context) error {
	all, countErr := s.countProcesses(ctx)
	list, err := s.tart.List(ctx)
	running := map[string]bool{}
	for _, vm := range list {
		if !vm.Image && vm.State == tartcli.StateRunning {
			running[vm.Name] = true
		}
	}
	folders, _ := os.ReadDir(filepath.Join(s.opts.TartHome, "vms"))
	for _, f := range folders {
		if pid, err := s.tart.Holder(f.Name()); err == nil && pid != 0 {
			running[f.Name()] = true
		}
	}
	foreign := 0
	for name := range running {
		if !s.known(name) {
			foreign++
		}
	}
	if err == nil {
		err = countErr
	}
	// Half a count frees no slot: a start that has counted all of them may be about to take one.
	s.slots.change(func(l *ledger) { l.recount(foreign, all, err == nil) })
	return err
}

// countProcesses counts the virtual machines of the host, of all users and programs; 0 on a system other than macOS.
func (s *Sandbox) countProcesses(ctx context.Context) (int, error) {
	if len(s.opts.Processes) == 0 {
		return 0, nil
	}
	var out strings.Builder
	if err := s.query(ctx, &out, s.opts.Processes); err != nil {
		return 0, &tartcli.Error{Operation: "counting the host's virtual machines", Kind: kindNotCounted, Message: err.Error(), Err: err}
	}
	return macvms.Count(out.String()), nil
}

// known reports whether a machine is counted for a pod, as the ledger has it: a machine whose record could not be read when this agent started
// counts as foreign until it is minded. So does one whose end is on record, if a process still holds it.
func (s *Sandbox) known(vm string) bool {
	uid, ours := strings.CutPrefix(vm, mark(s.owner))
	if !ours {
		return false
	}
	counted := false
	s.slots.read(func(l *ledger) { counted = l.held[uid] })
	r, err := s.load(uid)
	if err != nil || r.VM != vm || !r.Begun {
		return false
	}
	if r.Exit == nil {
		return counted
	}
	// The list may be older than the end.
	pid, err := s.tart.Holder(vm)
	return err != nil || pid == 0
}

// ImagesDir implements sandbox.ImageLocator.
func (s *Sandbox) ImagesDir() string { return s.opts.TartHome }

// TellNews implements sandbox.NewsSource. It may be called while the goroutines of adopted machines are running.
func (s *Sandbox) TellNews(tell func(podUID string, news sandbox.News)) { s.tell.Store(&tell) }

func (s *Sandbox) news(podUID, reason, message string) {
	if tell := s.tell.Load(); tell != nil {
		(*tell)(podUID, sandbox.News{Reason: reason, Message: message})
	}
}
