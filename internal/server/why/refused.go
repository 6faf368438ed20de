package why

import (
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// noLabels is of a job whose runs-on is a runner group alone.
func noLabels(e Evidence) *Reason {
	r := &Reason{
		Code:     NoLabels,
		Sentence: "It names no label: its runs-on is a runner group alone, and GitHub does not say which group before the job runs. A RunnerPool is found by labels.",
		Remedy:   "Name a label of the pool beside the group, as in runs-on: {group: GROUP, labels: [LABEL]}, with the pool's runnerGroup being that group.",
	}
	var near []string
	for _, pool := range e.Pools {
		if !pool.Terminating && len(near) < 3 {
			near = append(near, fmt.Sprintf("pool %s has the labels %s and is in runner group %s", pool.Name, labels(pool.Labels), pool.Group()))
		}
	}
	if len(near) > 0 {
		r.Sentence += " Here " + strings.Join(near, "; ") + "."
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
				Sentence: fmt.Sprintf("GitHub refuses to register a runner for this job%s; it is asked again %s.", said(r.Status, r.Message), at(e, r)),
				Remedy:   "Look at what GitHub says: it may not accept the job's labels, or the pool's runner group. The account's other jobs go on.",
			}
		case r.Pool == (dispatch.PoolRef{}) || r.Pool == e.Pool.Ref:
			return &Reason{
				Code: RepositoryRefused, Until: r.Next,
				Sentence: fmt.Sprintf("GitHub refuses to register a runner for jobs of %s%s; it is asked again %s.", r.Repository, said(r.Status, r.Message), at(e, r)),
				Remedy: "See that the App may administer the repository (permission Administration: write), and that the organization allows " +
					"self-hosted runners in it. The account's other jobs go on.",
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
	because := "GitHub's settings of " + group + " show no reason"
	if r.Message != "" {
		because = r.Message
	}
	owner, repository, _ := strings.Cut(r.Repository, "/")
	return &Reason{
		Code: GroupClosed, Until: r.Next,
		Sentence: fmt.Sprintf("GitHub gave none of the last %d runners of pool %s a job of %s: %s. The next runner is registered %s.",
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
			Sentence: fmt.Sprintf("%s has no runner group %s, in which pool %s registers its runners.", e.Account.Login, m.Group, e.Pool.Ref.Name),
			Remedy:   "Make the group in the organization's settings, or name another in the pool's runnerGroup; it is looked for again every minute.",
		}
	case m.Limited:
		return &Reason{
			Code: GitHubLimit, Until: m.Until, Sentence: fmt.Sprintf("GitHub's rate limit for %s is used up until %s.", e.Account.Login, clock(m.Until)),
			Remedy: "It passes by itself; another App, or runners of the organization instead of the repository, share the load.",
		}
	case m.Pool:
		return &Reason{
			Code: PoolRefused, Until: m.Until,
			Sentence: fmt.Sprintf("GitHub registers no runner of pool %s for %s%s; it is asked again at %s.", e.Pool.Ref.Name, e.Account.Login, said(m.Status, m.Why), clock(m.Until)),
			Remedy:   "Look at the pool's labels and runnerGroup, and at the App's permissions in the organization. The account's jobs in other pools go on.",
		}
	default:
		r := &Reason{
			Code: GitHubFailing, Until: m.Until,
			Remedy: "It is asked again by itself; the server's log has GitHub's own words. Look at the App's permissions, and at githubstatus.com.",
		}
		r.Sentence = fmt.Sprintf("GitHub registers no runner for %s%s; it is asked again at %s.", e.Account.Login, said(m.Status, m.Why), clock(m.Until))
		return r
	}
}
