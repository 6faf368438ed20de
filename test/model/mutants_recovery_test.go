package model

import table "github.com/bullpen-ci/bullpen/internal/server/recovery"

// withoutKinds is the product's table with rows that do nothing.
func withoutKinds(kinds ...table.Kind) func(*rules) {
	return func(r *rules) {
		r.judge = func(e table.Evidence) table.Verdict {
			v := table.Judge(e)
			for _, kind := range kinds {
				if v.Kind == kind {
					return table.Verdict{Do: table.Leave}
				}
			}
			return v
		}
	}
}

// seen is the product's table on evidence that is changed first.
func seen(change func(*table.Evidence)) func(*rules) {
	return func(r *rules) {
		r.judge = func(e table.Evidence) table.Verdict {
			change(&e)
			return table.Judge(e)
		}
	}
}

// recoveryMutants: each row that nothing else makes up for, and each sign that it depends on.
func recoveryMutants() []mutant {
	const trap = "RECV-5"
	lags := lagging
	lags.faults = 0 // one, where a fault is allowed
	atOnce := func(r *rules) {
		r.judge = func(e table.Evidence) table.Verdict {
			v := table.Judge(e)
			if v.Do == table.Unregister {
				v.Do = table.ReleaseRetire
			}
			return v
		}
	}
	return []mutant{
		{name: "RECV2 nothing releases a stale claim", broken: trap, rules: withoutKinds(table.StaleClaim), config: config{allow: faultPoller}},
		{name: "RECV5 nothing frees an idle runner", broken: trap, rules: withoutKinds(table.IdleRunner), config: config{allow: faultCancel}},
		{name: "RECV1 nothing frees an agent that never registers", broken: trap, config: config{allow: faultHang},
			rules: withoutKinds(table.AgentNeverRegistered)},
		{name: "RECV5 nothing records that a job has ended", broken: trap, config: config{allow: faultWebhookLost},
			rules: withoutKinds(table.OrphanCompleted)},
		{name: "RECV5 nothing frees the claim of a pod that is gone", broken: trap, config: config{allow: faultNode | faultUser},
			rules: withoutKinds(table.PodMissingClaim)},
		{name: "RECV1 nothing takes a pod that shows work and is nobody's", broken: trap, config: config{allow: faultPoller},
			rules: withoutKinds(table.OrphanedLabelledPod)},
		{name: "EXCL6 GitHub's word outweighs the pod's own sign", broken: "EXCL-6 a claim has ended", config: lags,
			rules: seen(func(e *table.Evidence) {
				if e.Live() && e.Runner == table.NotReady {
					e.Runner = table.Ready
				}
			})},
		{name: "EXCL6 GitHub's 422 is taken for a removal", broken: "EXCL-6 a claim has ended", config: config{without: without{refused: true}}},
		{name: "EXCL6 a claim ends with its registration, before its pod has shown its sign", broken: "EXCL-6 a claim has ended",
			config: lags, rules: atOnce},
		{name: "EXCL1 and its pod is deleted while it works", broken: "EXCL-1 a pod was deleted while it worked", config: lags, rules: atOnce},
		{name: "RECV5 nothing frees a claim whose registrations were removed", broken: trap, config: config{allow: faultHang},
			rules: withoutKinds(table.UnregisteredRunner)},
	}
}
