package why

import (
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// noLabels is of a job whose runs-on is a runner group alone.
func noLabels(e Evidence) *Reason {
	r := &Reason{
		Code: NoLabels,
		Sentence: "It has no labels: its runs-on names only a runner group, which GitHub does not report before the job runs. " +
			"Any runner of that group may take it, but a pool starts runners for labels only.",
		Remedy: "For a job of a pool, add the pool's label, as in runs-on: {group: GROUP, labels: [LABEL]}, and set the pool's runnerGroup to that group.",
	}
	var near []string
	for _, pool := range e.Pools {
		if !pool.Terminating && len(near) < 3 {
			near = append(near, fmt.Sprintf("pool %s has the labels %s and runner group %s", pool.Name, labels(pool.Labels), pool.Group()))
		}
	}
	if len(near) > 0 {
		r.Sentence += " Available: " + strings.Join(near, "; ") + "."
	}
	return r
}

// refused says what GitHub does not do for the job or its repository (CLAIM-19, CLAIM-20).
func refused(e Evidence) *Reason {
	for i := len(e.Refusals) - 1; i >= 0; i-- { // the narrowest first
		r := e.Refusals[i]
		switch {
		case !r.Waits || r.Repository == "":
		case r.Reason == dispatch.NotAssigned && r.Pool == e.Pool.Ref:
			return groupClosed(e, r)
		case r.Reason == dispatch.NotAssigned:
		case r.JobID != 0:
			return &Reason{
				Code: JobRefused, Until: r.Next,
				Sentence: fmt.Sprintf("GitHub rejects the registration of a runner for this job%s; the next attempt is %s.", said(r.Status, r.Message), at(e, r)),
				Remedy:   "Check GitHub's error: it may reject the job's labels or the pool's runner group. Other jobs of the account are not affected.",
			}
		case r.Pool == (dispatch.PoolRef{}) || r.Pool == e.Pool.Ref:
			return &Reason{
				Code: RepositoryRefused, Until: r.Next,
				Sentence: fmt.Sprintf("GitHub rejects the registration of runners for %s%s; the next attempt is %s.", r.Repository, said(r.Status, r.Message), at(e, r)),
				Remedy: "Check that the App has the permission Administration: write in the repository, and that the organization allows self-hosted " +
					"runners there. Other jobs of the account are not affected.",
			}
		}
	}
	return nil
}

func groupClosed(e Evidence, r dispatch.Refusal) *Reason {
	group := "the runner group of pool " + r.Pool.Name
	name := ""
	for _, pool := range e.Pools {
		if pool.Ref() == r.Pool {
			group, name = "runner group "+pool.Group(), pool.RunnerGroup
		}
	}
	because := "the settings of " + group + " at GitHub show no reason"
	if r.Message != "" {
		because = r.Message
	}
	owner, repository, _ := strings.Cut(r.Repository, "/")
	return &Reason{
		Code: GroupClosed, Until: r.Next,
		Sentence: fmt.Sprintf("GitHub assigned no job of %[3]s to the last %[1]d runners of pool %[2]s: %[4]s. The next runner is registered %[5]s.",
			r.Failures, r.Pool.Name, r.Repository, because, at(e, r)),
		Remedy: fmt.Sprintf("Open the group to %s: https://github.com/organizations/%s/settings/actions/runner-groups, or %s.", repository, owner,
			openGroup(owner, repository, name)),
	}
}

// openGroup is the command that adds a repository to the selected ones of a group.
func openGroup(owner, repository, group string) string {
	if group == "" {
		group = "Default"
	}
	return fmt.Sprintf("`gh api --method PUT \"orgs/%s/actions/runner-groups/$(gh api orgs/%s/actions/runner-groups --jq '.runner_groups[]|select(.name==\"%s\").id')/repositories/$(gh api repos/%s/%s --jq .id)\"`",
		owner, owner, group, owner, repository)
}

func at(e Evidence, r dispatch.Refusal) string {
	if !r.Next.After(e.Now) {
		return "now"
	}
	return "at " + clock(r.Next)
}

// said is GitHub's answer in brackets.
func said(status int, message string) string {
	switch {
	case status == 0 && message == "":
		return ""
	case status == 0:
		return " (" + message + ")"
	case message == "":
		return fmt.Sprintf(" (status %d)", status)
	}
	return fmt.Sprintf(" (status %d: %s)", status, message)
}

// wide is what is known of the account, or of the pool there, from whichever server has asked GitHub.
func wide(e Evidence) Mint {
	m := e.Mint
	for _, r := range e.Refusals {
		mine := r.Pool == (dispatch.PoolRef{}) || r.Pool == e.Pool.Ref
		if r.Repository != "" || !mine || !r.Next.After(e.Now) {
			continue
		}
		if !m.Until.After(e.Now) {
			m = Mint{Until: r.Next, Pool: r.Pool.Name != ""}
		}
		if m.Why == "" && m.Status == 0 && !m.Limited && m.Pool == (r.Pool.Name != "") {
			m.Why, m.Status = r.Message, r.Status
		}
	}
	return m
}

// github says what keeps runners from being registered (CLAIM-11, CLAIM-14).
func github(e Evidence) *Reason {
	switch m := wide(e); {
	case !m.Until.After(e.Now):
		return nil
	case m.Group != "":
		return &Reason{
			Code: NoRunnerGroup, Until: m.Until,
			Sentence: fmt.Sprintf("%s has no runner group %s, which pool %s uses.", e.Account.Login, m.Group, e.Pool.Ref.Name),
			Remedy:   "Create the group in the organization's settings, or set another one in the pool's runnerGroup. It is checked every minute.",
		}
	case m.Limited:
		return &Reason{
			Code: GitHubLimit, Until: m.Until, Sentence: fmt.Sprintf("GitHub's request quota for %s is exhausted until %s.", e.Account.Login, clock(m.Until)),
			Remedy: "No action is needed. To use less of the quota, register runners with the organization instead of repositories.",
		}
	case m.Pool:
		return &Reason{
			Code: PoolRefused, Until: m.Until,
			Sentence: fmt.Sprintf("GitHub rejects registrations of pool %s for %s%s; the next attempt is at %s.", e.Pool.Ref.Name, e.Account.Login, said(m.Status, m.Why), clock(m.Until)),
			Remedy:   "Check the pool's labels and runnerGroup, and the App's permissions in the organization. Jobs in other pools are not affected.",
		}
	default:
		r := &Reason{
			Code: GitHubFailing, Until: m.Until,
			Remedy: "It is retried automatically; the server's log has GitHub's error. Check the App's permissions and githubstatus.com.",
		}
		r.Sentence = fmt.Sprintf("GitHub rejects registrations for %s%s; the next attempt is at %s.", e.Account.Login, said(m.Status, m.Why), clock(m.Until))
		return r
	}
}
