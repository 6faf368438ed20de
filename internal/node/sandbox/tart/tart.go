//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Options configure the sandbox. The zero value of an optional field takes its default.
type Options struct {
	// StateDir is where everything is kept. Required; see process.Options.
	StateDir string
	// ShimCommand and Binary are the process back end's.
	ShimCommand []string
	Binary      string
	// Tart is how to call the program. TartHome is where it keeps its virtual machines; default: $TART_HOME, or ~/.tart.
	Tart     []string
	TartHome string
	// Env is what Tart's environment has beside the little that it inherits, NAME=value: TART_REGISTRY_…, for a registry that asks who it is. No
	// container gets it.
	Env []string
	// Slots is how many virtual machines may run at a time, 1 to MaxSlots (the default).
	Slots int
	// Launchctl tells whether the user has a GUI session. Default: launchctl. Kickstart restarts the login window, for which root's rights
	// are needed. Default: launchctl, by `sudo -n` where this is not root. An argument vector each, to which arguments are appended.
	Launchctl, Kickstart []string
	// Processes prints the commands of all processes of the host, one a line. Default: as ps does; on other systems than macOS nothing is read.
	Processes []string
	// LeaseSeconds reads how long the host's DHCP server lends an address. Default: what macOS is configured for; on other
	// systems nothing is read.
	LeaseSeconds func(ctx context.Context) (int, error)

	// StayUp is how long a machine must run before it counts as started, unless its guest reports earlier; 5 s.
	StayUp time.Duration
	// SlotPatience is how long Start waits for a slot before it says so; 2 s.
	SlotPatience time.Duration
	// SessionPatience is how long a GUI session may take to come back; 30 s.
	SessionPatience time.Duration
	// GuestRetry is the interval at which the guest's agent is started until it reports; 1 s. GuestPatience is the time after which a
	// machine without a report is given up; 10 min. GuestSilence is the time after its last report at which a guest counts as silent; 10
	// min.
	GuestRetry, GuestPatience, GuestSilence time.Duration
	// LookEvery is the interval at which the status share is read; 200 ms. RefreshEvery is that of the host's state; 30 s.
	LookEvery, RefreshEvery time.Duration
	// MaxStatus is how many bytes of this machine's disk a guest may take by its status share, which is weighed each StatusEvery; 256 MiB, 1 s.
	MaxStatus   int64
	StatusEvery time.Duration
	// Cooldown is how long a ghost slot is not tried again, the first time; 10 min.
	Cooldown time.Duration
	// StopGrace is what Tart gives a machine that is stopped before it kills it, in whole seconds; 10 s.
	StopGrace time.Duration

	// Log receives what is returned to no caller. Default: discarded.
	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time

	// reached is called at every step that a crash may follow.
	reached func(step string)
}

func (o Options) withDefaults() (Options, error) {
	if o.Slots == 0 {
		o.Slots = MaxSlots
	}
	if o.Slots < 1 || o.Slots > MaxSlots {
		return o, fmt.Errorf("%d virtual machines at once: Apple's licence and kernel allow 1 or %d", o.Slots, MaxSlots)
	}
	if len(o.Tart) == 0 {
		o.Tart = []string{"tart"}
	}
	if o.TartHome == "" {
		o.TartHome = os.Getenv("TART_HOME")
	}
	if o.TartHome == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return o, fmt.Errorf("finding the home directory, where Tart keeps its virtual machines: %w", err)
		}
		o.TartHome = filepath.Join(home, ".tart")
	}
	if len(o.Launchctl) == 0 {
		o.Launchctl = []string{"launchctl"}
	}
	if len(o.Kickstart) == 0 {
		o.Kickstart = o.Launchctl
		if os.Geteuid() != 0 {
			o.Kickstart = append([]string{"sudo", "-n"}, o.Launchctl...)
		}
	}
	if len(o.Processes) == 0 && runtime.GOOS == "darwin" {
		o.Processes = []string{"ps", "-axww", "-o", "command="}
	}
	if o.LeaseSeconds == nil {
		o.LeaseSeconds = configuredLease
	}
	for _, d := range []struct {
		field     *time.Duration
		otherwise time.Duration
	}{
		{&o.StayUp, 5 * time.Second}, {&o.SlotPatience, 2 * time.Second}, {&o.SessionPatience, 30 * time.Second},
		{&o.GuestRetry, time.Second}, {&o.GuestPatience, 10 * time.Minute}, {&o.GuestSilence, 10 * time.Minute},
		{&o.LookEvery, 200 * time.Millisecond}, {&o.RefreshEvery, 30 * time.Second}, {&o.Cooldown, 10 * time.Minute},
		{&o.StopGrace, 10 * time.Second}, {&o.StatusEvery, time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
	}
	if o.MaxStatus == 0 {
		o.MaxStatus = guestshare.MaxStatus
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.reached == nil {
		o.reached = func(string) {}
	}
	return o, nil
}

// Sandbox implements sandbox.Sandbox, sandbox.HostReporter, sandbox.ImageCollector and sandbox.NewsSource.
type Sandbox struct {
	opts  Options
	owner string
	host  *process.Sandbox
	tart  *tartcli.Client
	slots *slots
	state hostState

	pods    locks // by pod UID: who creates or removes the machine
	writes  locks // by pod UID: who changes the record
	images  locks // by digest, or by reference while that is not known
	flights flights
	session session

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	minders map[string]*minder // by pod UID
	execs   map[string]bool    // commands in guests whose reports are waited for, by id

	tell atomic.Pointer[func(podUID string, news sandbox.News)] // nil until TellNews
}

var (
	_ sandbox.Sandbox        = (*Sandbox)(nil)
	_ sandbox.HostReporter   = (*Sandbox)(nil)
	_ sandbox.ImageCollector = (*Sandbox)(nil)
	_ sandbox.ImageLocator   = (*Sandbox)(nil)
	_ sandbox.NewsSource     = (*Sandbox)(nil)
)

// firstLook bounds how long New waits for what the host says. After that pods are looked after whatever Tart does.
const firstLook = 5 * time.Second

// New opens the state directory, and takes over what runs there: every machine on record is counted before any can be started (NODE-5).
// Close ends its background work, and no machine.
func New(opts Options) (*Sandbox, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	host, err := process.New(process.Options{
		StateDir: opts.StateDir, ShimCommand: opts.ShimCommand, Binary: opts.Binary, Log: opts.Log, Now: opts.Now,
	})
	if err != nil {
		return nil, err
	}
	// Tart makes room by itself otherwise, by removing images that this agent knows nothing of the use of (Tart 4.2).
	client, err := tartcli.New(tartcli.Options{Command: opts.Tart, Home: opts.TartHome, Env: append([]string{"TART_NO_AUTO_PRUNE=1"}, opts.Env...)})
	if err != nil {
		return nil, err
	}
	s := &Sandbox{
		opts: opts, owner: host.Owner(), host: host, slots: newSlots(opts.Slots), minders: map[string]*minder{}, execs: map[string]bool{},
		tart: client,
	}
	s.opts.StateDir = filepath.Clean(opts.StateDir)
	for _, dir := range []string{s.vmsDir(), s.goldensDir(), s.fetchingDir(), s.fetchedDir(), s.goneDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making the state directory: %w", err)
		}
	}
	if err := os.MkdirAll(opts.TartHome, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of Tart's virtual machines: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.adopt()
	looked := make(chan struct{})
	s.wg.Go(func() { s.look(looked) })
	select {
	case <-looked:
	case <-time.After(firstLook):
		opts.Log.Warn("Tart has not responded yet; continuing without it")
	}
	return s, nil
}

// Close ends what goes on in the background and waits for it. No machine is stopped (NODE-3).
func (s *Sandbox) Close() {
	s.cancel()
	s.wg.Wait()
}

// adopt takes over the machines on record.
func (s *Sandbox) adopt() {
	all, err := s.records()
	if err != nil {
		s.opts.Log.Error("cannot read a pod's record; its virtual machine is counted when it is found running", "error", err)
	}
	for _, r := range all {
		if r.running() && !s.unbegin(r) {
			s.slots.change(func(l *ledger) { l.adopt(r.UID) })
			s.mind(r, true)
		}
	}
}

// Admit implements sandbox.Sandbox.
func (s *Sandbox) Admit(pod *corev1.Pod) error {
	if _, err := plan(pod); err != nil {
		return err
	}
	onHost := pod.DeepCopy()
	onHost.Spec.Containers = slices.DeleteFunc(onHost.Spec.Containers, func(c corev1.Container) bool { return c.Name == runnerpod.ContainerRunner })
	return s.host.Admit(onHost)
}

// Prepare implements sandbox.Sandbox.
func (s *Sandbox) Prepare(ctx context.Context, pod *corev1.Pod) error {
	uid := string(pod.UID)
	if !plainName.MatchString(uid) {
		return invalid("metadata.uid %q cannot be part of a virtual machine's name", uid)
	}
	unlock, err := s.pods.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.MkdirAll(s.statusDir(uid), 0o700); err != nil {
		return fmt.Errorf("making the pod's directory: %w", err)
	}
	r, err := s.load(uid)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		r = record{PodRef: sandbox.PodRef{UID: uid, Namespace: pod.Namespace, Name: pod.Name}, Terms: sandbox.TermsOf(pod), Owner: s.owner}
		err = s.save(r)
	case err == nil && r.Terms == sandbox.Terms{}: // of an earlier release
		_, err = s.update(uid, func(r *record) { r.Terms = sandbox.TermsOf(pod) })
	}
	if err != nil {
		return err
	}
	s.opts.reached("prepared")
	return s.host.Prepare(ctx, pod)
}

// List implements sandbox.Sandbox.
func (s *Sandbox) List(context.Context) ([]sandbox.PodRef, error) {
	all, err := s.records()
	if err != nil {
		return nil, err
	}
	var refs []sandbox.PodRef
	for _, r := range all {
		refs = append(refs, r.PodRef)
	}
	return refs, nil
}

// Inspect implements sandbox.Sandbox.
func (s *Sandbox) Inspect(ctx context.Context, podUID string) (sandbox.PodState, error) {
	r, err := s.load(podUID)
	if err != nil {
		return sandbox.PodState{}, err
	}
	state := sandbox.PodState{PodRef: r.PodRef, Terms: r.Terms}
	onHost, err := s.host.Inspect(ctx, podUID)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return sandbox.PodState{}, err
	}
	for _, c := range onHost.Containers {
		if !strings.HasPrefix(c.Name, containerPrefix) {
			state.Containers = append(state.Containers, c)
		}
	}
	if r.Begun {
		state.Containers = append(state.Containers, r.container())
	}
	return state, nil
}

func (r record) container() sandbox.ContainerState {
	return sandbox.ContainerState{
		Name: runnerpod.ContainerRunner, ID: fmt.Sprintf("tart://%s/%d", r.VM, r.Attempt), StartedAt: r.StartedAt, Exit: r.Exit,
	}
}

// update changes a pod's record. Copies that callers hold are stale afterwards.
func (s *Sandbox) update(uid string, change func(*record)) (record, error) {
	unlock, err := s.writes.lock(context.Background(), uid) // held for a moment only
	if err != nil {
		return record{}, err
	}
	defer unlock()
	r, err := s.load(uid)
	if err != nil {
		return r, err
	}
	change(&r)
	return r, s.save(r)
}

// onRecord finds a pod's begun machine, or says ErrNotFound.
func (s *Sandbox) onRecord(podUID string) (record, error) {
	r, err := s.load(podUID)
	if err == nil && !r.Begun {
		err = sandbox.ErrNotFound
	}
	return r, err
}

// Start implements sandbox.Sandbox.
func (s *Sandbox) Start(ctx context.Context, pod *corev1.Pod, c sandbox.Container) error {
	if c.Name == runnerpod.ContainerRunner {
		return s.startRunner(ctx, pod, c)
	}
	uid := string(pod.UID)
	if _, err := s.load(uid); err != nil {
		return err
	}
	// Images are Linux's: what the agent's image has is the program that runs here.
	if c.Name == runnerpod.ContainerAgent && len(c.Command) > 0 && filepath.Base(c.Command[0]) == "bullpen" {
		c.Command = append([]string{"bullpen"}, c.Command[1:]...)
	}
	c.Env = append(slices.Clone(c.Env), sandbox.EnvVar{Name: runnerpod.EnvStatusDir, Value: s.statusDir(uid)})
	return s.host.Start(ctx, pod, c)
}

// Wait implements sandbox.Sandbox.
func (s *Sandbox) Wait(ctx context.Context, podUID, name string) (sandbox.Exit, error) {
	if name != runnerpod.ContainerRunner {
		return s.host.Wait(ctx, podUID, name)
	}
	r, err := s.onRecord(podUID)
	if err != nil {
		return sandbox.Exit{}, err
	}
	if r.Exit == nil {
		select {
		case <-s.mind(r, true).done:
		case <-ctx.Done():
			return sandbox.Exit{}, context.Cause(ctx)
		}
		if r, err = s.onRecord(podUID); err != nil {
			return sandbox.Exit{}, err
		}
	}
	if r.Exit == nil {
		return sandbox.Exit{}, fmt.Errorf("waiting for the virtual machine %s: %w", r.VM, errInterrupted)
	}
	return *r.Exit, nil
}

// errInterrupted reports that a machine is no longer supervised: this agent is stopping, or could not write its record.
var errInterrupted = errors.New("it is not supervised at the moment")

// Signal implements sandbox.Sandbox.
func (s *Sandbox) Signal(ctx context.Context, podUID, name string, signal sandbox.Signal) error {
	if name != runnerpod.ContainerRunner {
		return s.host.Signal(ctx, podUID, name, signal)
	}
	r, err := s.onRecord(podUID)
	if err != nil || r.Exit != nil {
		return err
	}
	if signal == sandbox.Terminate {
		return s.orderTerminate(r)
	}
	if r, err = s.update(podUID, func(r *record) { r.Killed = true }); err != nil {
		return err
	}
	s.mind(r, true).end()
	return nil
}
