package onebox

// restartPlan is the order in which a demonstration restarts its processes, and when.
type restartPlan struct {
	steps []restartStep
}

// restartStep is due once that share of the jobs is done and at least one runs.
type restartStep struct {
	part string
	hard bool // SIGKILL instead of SIGTERM
	done int
}

// jobsPerRound is how many jobs it takes for another round of restarts.
const jobsPerRound = 200

// planRestarts restarts the macOS agent as soon as a macOS job runs, and spreads the other restarts over the middle of the run. Each
// component is restarted once in a round, with kill -9 and SIGTERM alternating. As there are three, the next round has the signals the
// other way round. With containers there is no Mac, and the node's own programs take the place of the node agent.
func planRestarts(jobs int, containers bool) restartPlan {
	rounds := max(1, jobs/jobsPerRound)
	parts := []string{partServer, partController, partNode}
	plan := restartPlan{steps: []restartStep{{part: partMac, hard: true}}}
	if containers {
		parts = []string{partServer, partController, partKubelet, partContainerd}
		plan.steps = nil
	}
	total := rounds * len(parts)
	for i := range total {
		plan.steps = append(plan.steps, restartStep{
			part: parts[i%len(parts)], hard: i%2 == 0,
			done: jobs/12 + i*jobs*6/10/total, // from a twelfth to about two thirds of the jobs
		})
	}
	return plan
}

// parts in the order of their restarts.
func (p restartPlan) parts() []string {
	names := make([]string, len(p.steps))
	for i, step := range p.steps {
		names[i] = step.part
	}
	return names
}

// due is the next step, given how many were taken, and how many jobs are done, running, and running on macOS.
func (p restartPlan) due(taken, done, running, onMac int) (restartStep, bool) {
	if taken >= len(p.steps) || p.steps[taken].running(running, onMac) == 0 || done < p.steps[taken].done {
		return restartStep{}, false
	}
	return p.steps[taken], true
}

// running is how many jobs the restart could do harm to.
func (s restartStep) running(all, onMac int) int {
	if s.part == partMac {
		return onMac
	}
	return all
}
