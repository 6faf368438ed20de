package dispatch

import "github.com/bullpen-ci/bullpen/internal/server/events/roster"

// FoundRunner is a pod whose registrations GitHub shows, with or without rows: what a claim is rebuilt from after a restore
// (CLAIM-17). Runners is never empty.
type FoundRunner struct {
	Pod     Pod
	Pool    Pool // zero when it is deleted: then only the job is charged
	Account Account
	Runners []roster.Found
}

// Runner is the liveliest of them: busy before online before neither, then the newest.
func (f FoundRunner) Runner() roster.Found {
	best := f.Runners[0]
	for _, r := range f.Runners[1:] {
		if liveliness(r) > liveliness(best) || liveliness(r) == liveliness(best) && r.ID > best.ID {
			best = r
		}
	}
	return best
}

func liveliness(r roster.Found) int {
	switch {
	case r.Busy:
		return 2
	case r.Online:
		return 1
	default:
		return 0
	}
}

// Adoption is the runner in the words of an adoption, without a job.
func (f FoundRunner) Adoption() Adoption {
	r := f.Runner()
	return Adoption{RunnerName: r.Name, RunnerID: r.ID, PodUID: f.Pod.UID, Account: f.Account, Scope: r.Scope}
}

// FoundAt puts together what GitHub's lists show of a pod; false when they show nothing.
func FoundAt(pod Pod, pool Pool, seen roster.Sighting) (FoundRunner, bool) {
	if len(seen.Found) == 0 {
		return FoundRunner{}, false
	}
	f := FoundRunner{Pod: pod, Pool: pool, Runners: seen.Found}
	f.Account = accountOf(f.Runner().Owner)
	return f, true
}
