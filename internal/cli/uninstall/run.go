package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// Server is the fence, as an administrator reaches it.
type Server interface {
	// Retire grants the removal of an idle runner, once and for all: it is given no job after that. A *cli.APIError is a refusal, and any
	// other error is no answer.
	Retire(ctx context.Context, namespace, name, reason string) (adminapi.RetiredRunner, error)
}

// Options of Run.
type Options struct {
	// Namespace of the runners, and SystemNamespace of the server and the controller. Required.
	Namespace, SystemNamespace string
	// SystemAssumed indicates that SystemNamespace is a default: a controller of another namespace is then looked for (ErrOtherNamespace).
	SystemAssumed bool
	// Server is asked about idle runners when no controller runs; nil: it is not known where it is.
	Server Server
	// WithoutServer indicates that no server runs any more, as the user confirms: nothing hands out jobs, so runners without a sign of work
	// are deleted with their grace period.
	WithoutServer bool
	// Every is the time between two observations; 2 seconds when zero. Patience is how long a controller may be silent until it is gone; 20
	// seconds when zero, which is longer than its Lease.
	Every, Patience time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Out gets a line for each new reason to wait; discarded when nil.
	Out io.Writer
}

// Report is the result.
type Report struct {
	Namespace string `json:"namespace"`
	// Done: nothing of the installation is left in the namespace that a finalizer could hold.
	Done bool `json:"done"`
	// Left is what there still is, and why.
	Left []Waiting `json:"left,omitempty"`
}

// ErrBlocked: what is left does not end by itself. The report says what a person has to do.
var ErrBlocked = errors.New("some objects were not removed. The table lists them, with the reason")

// ErrOtherNamespace: the controller of this installation may run where it was not looked for, and would act beside this command.
var ErrOtherNamespace = errors.New("set --system-namespace to the controller's namespace")

const reason = "bullpen uninstall"

// Run deletes all owners of runners in the namespace and returns when nothing is left, when what is left needs a person (ErrBlocked), or when
// ctx ends. No busy runner is touched. Running it again continues.
func Run(ctx context.Context, config *rest.Config, o Options) (Report, error) {
	o = o.withDefaults()
	c, err := newCluster(config, o)
	if err != nil {
		return Report{}, err
	}
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	report := Report{Namespace: o.Namespace}
	for {
		state, err := c.observe(ctx, o.Now())
		if err != nil {
			return report, err
		}
		if report.Done = state.Done(); report.Done {
			report.Left = nil
			return report, nil
		}
		plan := Decide(state)
		left, err := o.act(ctx, c, plan)
		if err != nil {
			return report, err
		}
		o.say(report.Left, left)
		report.Left = left
		if state.Controller == Gone && plan.stepless() && len(left) > 0 && !slices.ContainsFunc(left, func(w Waiting) bool { return !w.Blocked }) {
			return report, ErrBlocked
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return report, ctx.Err()
		}
	}
}

func (o Options) withDefaults() Options {
	if o.Every == 0 {
		o.Every = 2 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 20 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

// stepless reports whether the plan changes nothing. A runner's retirement may be refused for ever, so it is no step.
func (p Plan) stepless() bool {
	return len(p.Delete)+len(p.Remove)+len(p.Release)+len(p.Accounts) == 0
}

// act carries a plan out, and returns what is left to wait for.
func (o Options) act(ctx context.Context, c *cluster, p Plan) ([]Waiting, error) {
	left := slices.Clone(p.Waiting)
	var errs []error
	for _, owner := range p.Delete {
		errs = append(errs, c.deleteOwner(ctx, owner))
	}
	for _, r := range p.Remove {
		if r.Protected {
			errs = append(errs, c.releasePod(ctx, r))
		}
		if !r.Deleting && !r.Protected { // with the finalizer off it is another version: next time
			errs = append(errs, c.removePod(ctx, r))
		}
	}
	for _, r := range p.Retire {
		waiting, err := o.retire(ctx, c, r)
		if waiting != nil {
			left = append(left, *waiting)
		}
		errs = append(errs, err)
	}
	for _, owner := range p.Release {
		errs = append(errs, c.releaseOwner(ctx, owner))
	}
	for _, name := range p.Accounts {
		errs = append(errs, c.deleteAccount(ctx, name))
	}
	return left, errors.Join(errs...)
}

// retire removes an idle runner if the server grants it. It asks in the same breath in which it deletes, and the preconditions make the API
// server refuse if the pod has changed since it was observed without a sign of work (EXCL-2).
func (o Options) retire(ctx context.Context, c *cluster, r Runner) (*Waiting, error) {
	blocked := func(why string) *Waiting { return &Waiting{Object: "runner " + r.Name, Why: why, Blocked: true} }
	switch {
	case o.WithoutServer:
		return nil, c.removePod(ctx, r)
	case o.Server == nil:
		return blocked("only the server knows whether it has a job. Use --server URL, or --without-server if the server no longer exists"), nil
	}
	granted, err := o.Server.Retire(ctx, o.Namespace, r.Name, reason)
	var refused *cli.APIError
	switch {
	case errors.As(err, &refused) && (refused.Status == http.StatusConflict || refused.Status == http.StatusNotFound): // busy, or not seen yet
		return &Waiting{Object: "runner " + r.Name, Why: refused.Sentence}, nil
	case err != nil: // EXCL-3
		return blocked(fmt.Sprintf("cannot ask the server whether it has a job (%v). Repair the server, or use --without-server if it no longer exists", err)), nil
	case granted.UID != r.UID, granted.State != adminapi.RunnerRetired && granted.State != adminapi.RunnerFinished:
		return nil, nil //nolint:nilnil // another pod of that name: observed next time
	}
	return nil, c.removePod(ctx, r)
}

// say prints the reasons to wait that are new.
func (o Options) say(before, now []Waiting) {
	for _, w := range now {
		if !slices.Contains(before, w) {
			fmt.Fprintf(o.Out, "waiting for %s: %s\n", w.Object, w.Why)
		}
	}
}

// Table shows a report.
func (r Report) Table() cli.Table {
	t := cli.Table{Columns: []string{"LEFT", "WHY"}, Empty: "All pools and runners in namespace " + r.Namespace + " are deleted."}
	for _, w := range r.Left {
		t.Rows = append(t.Rows, []string{w.Object, w.Why})
	}
	return t
}
