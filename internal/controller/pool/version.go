package pool

import (
	"time"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// versions is what the exits of a pool's runners say about the version in its template.
type versions struct {
	refused  string // the template whose version GitHub has refused as too old
	accepted string // the template whose runner has completed a job since
	refusals int    // in a row
}

// outdated reports whether GitHub has refused the runner because its version is too old.
func (e ending) outdated() bool { return e.exited && e.exitCode == podsigns.ExitOutdated }

// runnerEnded records a runner's exit, once. A runner whose version GitHub refuses had received a configuration: it was ready, and its
// start did not fail. Its job stays queued, and the next runner of the same image would exit in the same way, so new ones are started
// slowly.
func (s *poolState) runnerEnded(v podView, now time.Time) {
	switch {
	case v.end.outdated():
		s.versions.refused, s.versions.accepted = v.templateHash, ""
		s.versions.refusals++
		s.hold(now.Add(lifecycle.Backoff(s.versions.refusals)))
	case v.end.exited && v.end.exitCode == 0 && v.signs.Owner != "":
		s.versions = versions{accepted: v.templateHash}
	}
}

// outdated: GitHub refuses the version of the runners (RUN-7). The state from before a restart stands until a runner shows otherwise.
func (c *conditions) outdated(f facts) {
	const kind = v1alpha1.ConditionOutdated
	switch hash := f.wish.TemplateHash; {
	case f.counts.versions.refused == hash && hash != "":
		c.set(kind, true, "VersionRefused",
			"GitHub rejects runners of this version as too old, and their jobs stay queued. Set a newer image in the template.")
	case f.counts.versions.accepted == hash || f.newTemplate:
		c.clear(kind, "VersionAccepted", "GitHub accepts the runner version of this template")
	}
}
