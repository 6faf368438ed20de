package why

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// queued looks for what keeps a queued job from being claimed. Reasons of the whole account or fleet come before those of the job alone,
// and those that only need time come last.
func queued(e Evidence) []Reason {
	var found []Reason
	add := func(r *Reason) {
		if r != nil {
			found = append(found, *r)
		}
	}
	pool, unrouted := route(e)
	if unrouted != nil && unrouted.outside() { // CLAIM-21: what Bullpen lacks is nothing to such a job
		return []Reason{*unrouted}
	}
	add(unrouted)
	add(paused(e))
	add(account(e))
	add(repository(e))
	add(refused(e))
	if pool {
		add(limits(e))
	}
	add(github(e))
	if e.Frozen != "" {
		add(&Reason{
			Code: LedgerFrozen, Sentence: "The ledger is frozen while it is compared with GitHub: " + stop(e.Frozen),
			Remedy: "No action is needed. The metric bullpen_ledger_frozen is 1 until then (docs/guides/restore.md).",
		})
	}
	if pool {
		add(runners(e))
	}
	if len(found) == 0 {
		found = append(found, Reason{Code: AboutToBeClaimed, Sentence: "The next idle runner of pool " + e.Pool.Ref.Name + " takes it."})
	}
	return found
}

// Route is the pool that serves jobs with those labels; false when none does, or several.
func Route(pools []dispatch.Pool, labels []string) (dispatch.PoolRef, bool) {
	routing := dispatch.Route(pools, []dispatch.LabelSet{{Key: dispatch.LabelKey(labels), Labels: labels}})
	for ref := range routing.Served {
		return ref, true
	}
	return dispatch.PoolRef{}, false
}

// route reports whether one pool serves the job's labels, and else why none does.
func route(e Evidence) (served bool, reason *Reason) {
	if len(e.Job.Labels) == 0 {
		return false, noLabels(e)
	}
	key := dispatch.LabelKey(e.Job.Labels)
	routing := dispatch.Route(e.Pools, []dispatch.LabelSet{{Key: key, Labels: e.Job.Labels}})
	if several := routing.Ambiguous[key]; len(several) > 0 { // CLAIM-12
		var names []string
		for _, ref := range several {
			names = append(names, ref.Name)
		}
		slices.Sort(names)
		return false, &Reason{
			Code:     SeveralPools,
			Sentence: fmt.Sprintf("Several pools have its labels (%s): %s. It stays queued until only one pool has them.", labels(e.Job.Labels), strings.Join(names, ", ")),
			Remedy:   "Remove the label from all pools but one, or delete the others.",
		}
	}
	if _, none := routing.Unserved[key]; !none {
		return true, nil
	}
	return false, noPool(e)
}

// paused is the reason if the pool that serves the job hands out none.
func paused(e Evidence) *Reason {
	ref, ok := Route(e.Pools, e.Job.Labels)
	at := slices.IndexFunc(e.Pools, func(p dispatch.Pool) bool { return p.Ref() == ref && p.Paused })
	if !ok || at < 0 {
		return nil
	}
	note := ""
	if said := e.Pools[at].PausedNote; said != "" {
		note = " (" + said + ")"
	}
	return &Reason{
		Code: PoolPaused, Sentence: "Pool " + ref.Name + " is paused or drained" + note + ".",
		Remedy: "`bullpen pool resume " + ref.Name + "` resumes it; the oldest job starts first.",
	}
}

func labels(list []string) string { return strings.Join(list, ", ") }

// account is the reason if the account is not served at all.
func account(e Evidence) *Reason {
	switch a := e.Account; {
	case !a.Installed:
		return &Reason{
			Code: NotInstalled, Sentence: "The GitHub App is no longer installed at " + a.Login + ".",
			Remedy: "Install the App there again.",
		}
	case a.SuspendedByGitHub:
		return &Reason{
			Code: SuspendedByGitHub, Sentence: "GitHub has suspended the App's installation at " + a.Login + ".",
			Remedy: "An owner of " + a.Login + " can unsuspend it in the settings of installed Apps.",
		}
	case a.SuspendedByAdministrator:
		r := &Reason{Code: SuspendedByAdministrator, Sentence: "An administrator has suspended " + a.Login + ".", Remedy: "`bullpen accounts resume " + a.Login + "` resumes it."}
		if a.SuspensionReason != "" {
			r.Sentence = fmt.Sprintf("An administrator has suspended %s: %s", a.Login, stop(a.SuspensionReason))
		}
		return r
	}
	return nil
}

// The reasons for which jobs are held.
const (
	heldForLimit   = "repository_limit"
	heldForRemoval = "repository_removed"
	heldForLabels  = "label_sets"
)

func repository(e Evidence) *Reason {
	switch e.Job.BlockedBy {
	case heldForRemoval:
		return &Reason{
			Code: RepositoryRemoved, Sentence: "The App no longer has access to " + e.Job.Repository + ".",
			Remedy: "Add the repository again in the settings of the App's installation.",
		}
	case heldForLabels:
		return &Reason{
			Code: LabelSetsAtLimit,
			Sentence: fmt.Sprintf("%s has queued or running jobs for %d different label sets, the maximum per account, and %s is not one of them.",
				e.Account.Login, dispatch.MaxLabelSets, labels(e.Job.Labels)),
			Remedy: "It is queued an hour after the last job of another label set completes. Labels that are generated for each run cause this.",
		}
	case heldForLimit:
		return &Reason{
			Code: RepositoryAtLimit,
			Sentence: fmt.Sprintf("%s is at its limit: %d of %s per repository of %s.", e.Job.Repository, e.Budget.RepositoryUsage,
				many(e.Budget.Limits.JobsPerRepository, "job"), e.Account.Login),
			Remedy: fmt.Sprintf("It will start when one of them completes. To run more at once, run `bullpen accounts set-limits %s --platform %s --jobs-per-repository N`.", e.Account.Login, e.Pool.Platform),
		}
	}
	return nil
}

// limits says which of the account's limits leaves no room for one more runner of the pool (CLAIM-5).
func limits(e Evidence) *Reason {
	l, u, shape := e.Budget.Limits, e.Budget.Usage, e.Pool.Shape
	if l.Room(u, shape) > 0 {
		return nil
	}
	change := fmt.Sprintf("To raise the limit, run `bullpen accounts set-limits %s --platform %s %%s`.", e.Account.Login, e.Pool.Platform)
	for _, one := range []struct {
		used, limit, needs int64
		name, says, flag   string
	}{
		{u.Jobs, l.Jobs, 1, "jobs", fmt.Sprintf("runs %d of %s", u.Jobs, many(l.Jobs, "job")), "--jobs N"},
		{u.MilliCPU, l.MilliCPU, shape.MilliCPU, "CPUs", fmt.Sprintf("uses %s of %s CPUs, and a runner needs %s", cpus(u.MilliCPU), cpus(l.MilliCPU), cpus(shape.MilliCPU)), "--cpu N"},
		{u.MemoryMB, l.MemoryMB, shape.MemoryMB, "memory", fmt.Sprintf("uses %d of %d MiB of memory, and a runner needs %d", u.MemoryMB, l.MemoryMB, shape.MemoryMB), "--memory N"},
	} {
		switch {
		case one.needs == 0 || one.used+one.needs <= one.limit:
			continue
		case one.limit == 0:
			return &Reason{
				Code: TooLarge, Sentence: fmt.Sprintf("%s cannot run jobs on %s: its limit of %s is 0.", e.Account.Login, e.Pool.Platform, one.name),
				Remedy: fmt.Sprintf(change, one.flag),
			}
		case one.needs > one.limit:
			return &Reason{
				Code: TooLarge, Sentence: fmt.Sprintf("A runner of pool %s exceeds the limits of %s on %s: it %s.", e.Pool.Ref.Name, e.Account.Login, e.Pool.Platform, one.says),
				Remedy: fmt.Sprintf(change, one.flag),
			}
		}
		return &Reason{
			Code: AccountAtLimit, Sentence: fmt.Sprintf("%s is at its limit on %s: it %s.", e.Account.Login, e.Pool.Platform, one.says),
			Remedy: "It will start when another job of the account completes. " + fmt.Sprintf(change, one.flag),
		}
	}
	return nil
}

func many(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func cpus(milli int64) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return strings.TrimRight(fmt.Sprintf("%.3f", float64(milli)/1000), "0")
}

// runners says what the pool lacks. A pool with an idle runner lacks nothing.
func runners(e Evidence) *Reason {
	p := e.Pool
	switch {
	case p.Idle > 0 && e.Ahead > 0:
		return &Reason{Code: BehindOthers, Sentence: strings.TrimSpace(ahead(e))}
	case p.Idle > 0:
		return nil
	case p.Saturated != "":
		return &Reason{Code: PoolSaturated, Sentence: "Pool " + p.Ref.Name + " is full. " + stop(p.Saturated) + ahead(e), Remedy: "It will start when a runner becomes free."}
	case p.Starved != "":
		return &Reason{Code: PoolStarved, Sentence: "Pool " + p.Ref.Name + " cannot start more runners: " + stop(p.Starved), Remedy: "Fix the cause in the message; for Events, run `kubectl describe runnerpool " + p.Ref.Name + "`."}
	case p.Desired == 0 && p.Replicas == 0:
		return &Reason{Code: PoolEmpty, Sentence: "Pool " + p.Ref.Name + " has 0 desired runners.",
			Remedy: "Start runners with `bullpen pool scale " + p.Ref.Name + " --replicas N`, or let jobs do it with `bullpen pool set " + p.Ref.Name + " --autoscaling --max-replicas N`."}
	case p.Starting > 0 && p.PullFailed != "":
		return &Reason{
			Code:     PoolStarting,
			Sentence: fmt.Sprintf("No runner of pool %s is idle; %s. A node cannot pull the pool's images: %s", p.Ref.Name, starting(p.Starting), stop(p.PullFailed)) + ahead(e),
			Remedy:   "Fix the cause in the message: the image's name, its tag, or the pull secrets.",
		}
	case p.Starting > 0:
		return &Reason{Code: PoolStarting, Sentence: fmt.Sprintf("No runner of pool %s is idle; %s.", p.Ref.Name, starting(p.Starting)) + ahead(e)}
	default:
		return &Reason{Code: PoolSaturated, Sentence: fmt.Sprintf("No runner of pool %s is idle: %d busy.", p.Ref.Name, p.Busy) + ahead(e)}
	}
}

// stop ends what others have said as a sentence.
func stop(text string) string { return strings.TrimRight(text, ". ") + "." }

func starting(n int64) string {
	if n == 1 {
		return "1 is starting"
	}
	return fmt.Sprintf("%d are starting", n)
}

func ahead(e Evidence) string {
	if e.Ahead == 0 {
		return ""
	}
	is := "are"
	if e.Ahead == 1 {
		is = "is"
	}
	return fmt.Sprintf(" %s from %s %s ahead of it in the queue.", many(e.Ahead, "job"), e.Account.Login, is)
}
