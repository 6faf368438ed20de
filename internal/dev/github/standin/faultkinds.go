package standin

import "slices"

// FaultKind names what goes wrong.
type FaultKind string

// The faults; [FaultCatalogue] says what each does, which fields of [Fault] it reads, and what it imitates.
const (
	FaultHookDrop       FaultKind = "hook-drop"
	FaultHookVanish     FaultKind = "hook-vanish"
	FaultHookAnswered   FaultKind = "hook-answered"
	FaultHookLateAnswer FaultKind = "hook-late-answer"
	FaultHookDelay      FaultKind = "hook-delay"
	FaultHookDouble     FaultKind = "hook-double"
	FaultHookReorder    FaultKind = "hook-reorder"
	FaultHookSignature  FaultKind = "hook-signature"

	FaultRESTStatus    FaultKind = "rest-status"
	FaultRESTLatency   FaultKind = "rest-latency"
	FaultRESTCut       FaultKind = "rest-cut"
	FaultRESTCutBefore FaultKind = "rest-cut-before"
	FaultRateEmpty     FaultKind = "rate-empty"
	FaultRateSecondary FaultKind = "rate-secondary"
	FaultForbidden     FaultKind = "scope-forbidden"
	FaultMissing       FaultKind = "scope-missing"
	FaultTokens        FaultKind = "token-expired"

	FaultSession         FaultKind = "session-conflict"
	FaultSessionRefused  FaultKind = "session-refused"
	FaultVersionRefused  FaultKind = "version-refused"
	FaultRunnerCut       FaultKind = "runner-cut"
	FaultRunnerStarved   FaultKind = "runner-starved"
	FaultRunnerCleanup   FaultKind = "runner-cleanup"
	FaultAssignDifferent FaultKind = "assign-different"
	FaultBusyHidden      FaultKind = "busy-hidden"
	FaultRemoveBusy      FaultKind = "remove-busy"
	FaultRemoveRefused   FaultKind = "remove-refused"

	FaultJobCancel    FaultKind = "job-cancel"
	FaultQueueTimeout FaultKind = "queue-timeout"
)

// Sets of selectors that several kinds share.
const (
	selectHooks  = "event action job run installation"
	selectCalls  = "route installation scope runner job run"
	selectRunner = "runner job run installation"
)

// FaultInfo documents one kind.
type FaultInfo struct {
	Kind FaultKind
	// The fault's effect, and its target.
	What string
	// Reads names the fields of Fault it reads besides times and percent, by their JSON names.
	Reads []string
	// Needs names those of them that must be set.
	Needs []string
	// Imitates is the fact behind it, and Source where that fact is from.
	Imitates, Source string
}

func info(kind FaultKind, reads, needs, what, imitates, source string) FaultInfo {
	return FaultInfo{Kind: kind, What: what, Reads: words(reads), Needs: words(needs), Imitates: imitates, Source: source}
}

// FaultCatalogue documents every kind, in the order in which the reference lists them.
func FaultCatalogue() []FaultInfo {
	return slices.Concat(hookFaults(), callFaults(), runnerFaults(), jobFaults())
}

// FaultKinds lists every kind.
func FaultKinds() []FaultKind {
	var kinds []FaultKind
	for _, one := range FaultCatalogue() {
		kinds = append(kinds, one.Kind)
	}
	return kinds
}

func hookFaults() []FaultInfo {
	return []FaultInfo{
		info(FaultHookDrop, selectHooks, "",
			"The webhook is not sent. It is listed as a failed delivery (502), and can be asked for again.",
			"A receiver that cannot be reached. GitHub does not retry; an App finds the failure in its list of deliveries and asks.",
			"GitHub docs, “Handling failed webhook deliveries”"),
		info(FaultHookVanish, selectHooks, "",
			"The webhook is neither sent nor listed; only the ledger knows of it.",
			"An event that GitHub never turned into a delivery: jobs that stay queued although no delivery failed.",
			"reports of missing hooks: ubicloud pull 1042, fireactions pull 94"),
		info(FaultHookAnswered, selectHooks, "",
			"The webhook is listed as delivered (200), but its receiver never got it.",
			"A proxy or load balancer before the receiver that answers 200 and drops the request: no failed delivery shows it.",
			"GitHub docs: a delivery counts as delivered by its answer alone"),
		info(FaultHookLateAnswer, selectHooks, "",
			"The webhook is sent and handled, but listed as timed out (504).",
			"An answer that takes longer than 10 seconds. Asking again then delivers the same GUID twice.",
			"GitHub docs, “Best practices for using webhooks”: respond within 10 seconds"),
		info(FaultHookDelay, selectHooks+" delay", "delay",
			"The webhook is sent that much later, after others that were made after it.",
			"A slow pipeline: half of all webhooks take 2 s, one in twenty over 160 s.",
			"CarbonRunner's public latency page"),
		info(FaultHookDouble, selectHooks, "",
			"The webhook is sent twice under one GUID.",
			"Any user with access to the App may ask for a delivery again, and so does a client that cannot know that the first one arrived.",
			"GitHub docs, “Best practices for using webhooks”: X-GitHub-Delivery tells replays"),
		info(FaultHookReorder, selectHooks, "",
			"The webhook is sent after the same job's next one.",
			"The order of deliveries is not promised: completed may come before in_progress.",
			"GitHub docs, “Troubleshooting webhooks”: deliveries out of order"),
		info(FaultHookSignature, selectHooks, "",
			"The webhook carries a signature made with another secret. Asked for again, it is signed well.",
			"A secret that was changed on one side only, and a forger.",
			"GitHub docs, “Validating webhook deliveries”"),
	}
}

func callFaults() []FaultInfo {
	return []FaultInfo{
		info(FaultRESTStatus, selectCalls+" status delay", "status",
			"The call is answered with status (400 to 599) and takes no effect. A 403 or 429 is worded as a secondary limit and carries Retry-After: delay.",
			"Errors of GitHub's own: 500, 502, 503 in incidents.",
			"githubstatus.com"),
		info(FaultRESTLatency, selectCalls+" delay", "delay",
			"The call is answered that much later.",
			"Slow answers in incidents and under load; GitHub ends a request after 10 s itself.",
			"GitHub docs, “Troubleshooting the REST API”: time-outs"),
		info(FaultRESTCutBefore, selectCalls, "",
			"The connection is cut before the call takes effect.",
			"A connection that breaks on its way there.", "any network"),
		info(FaultRESTCut, selectCalls, "",
			"The call takes effect, then the connection is cut: the answer is lost.",
			"A connection that breaks on its way back: a mint whose JIT configuration is lost, its name taken from then on.", "any network"),
		info(FaultRateEmpty, "bucket route installation status delay", "",
			"The bucket of the call (or only calls of the named bucket: core, actions_runner_registration) is empty from then on until it is reset, after delay if that is set. Calls are refused with status (403, or 429), x-ratelimit-remaining 0, x-ratelimit-reset and x-ratelimit-resource.",
			"The primary rate limit: a shared installation used up by another client.",
			"GitHub docs, “Rate limits for the REST API”"),
		info(FaultRateSecondary, selectCalls+" status delay", "",
			"The call is refused with status (403, or 429), Retry-After: delay (60 s) and the words of a secondary limit; the primary bucket still shows room.",
			"Secondary limits: 100 requests at once, 900 points a minute, 80 content-creating calls a minute.",
			"GitHub docs, “Rate limits for the REST API”: about secondary rate limits"),
		info(FaultForbidden, "installation scope route", "",
			"Every call of the installation (or only of the scope acme, or acme/app, a shell pattern) answers 403 “Resource not accessible by integration”, until the fault is removed.",
			"A permission that was taken from the App, or a new one not accepted yet: nothing proves then that a runner is gone.",
			"GitHub docs, “Troubleshooting the REST API”: resource not accessible"),
		info(FaultMissing, "installation scope route", "",
			"Every call of the installation (or only of the scope) answers 404, until the fault is removed.",
			"GitHub answers 404 instead of 403 where it would not even admit that something exists: a repository made private, or taken from the installation. An App that trusts it removes every runner.",
			"GitHub docs, “Troubleshooting the REST API”: 404 for an existing resource"),
		info(FaultTokens, selectCalls, "",
			"The token of the call, an installation's or a runner's, is refused from then on (401).",
			"Tokens end early: when a permission changes, when the App is suspended, when a clock is wrong.",
			"GitHub docs, “Authenticating as a GitHub App installation”"),
	}
}

func runnerFaults() []FaultInfo {
	return []FaultInfo{
		info(FaultSession, selectRunner, "",
			"Opening a session answers 409.",
			"The session of a listener that was killed is still open. The runner tries for four minutes.",
			"actions/runner, MessageListener; actions-runner-controller issue 3209"),
		info(FaultSessionRefused, selectRunner+" status", "",
			"Opening a session answers status (default 403): the runner is alive and never registers.",
			"A registration that GitHub does not accept any more, or whose version is too old.",
			"actions/runner, BrokerServer: errors of the session call"),
		info(FaultVersionRefused, selectRunner, "",
			"Waiting for a message answers 403 RunnerVersionTooOld: the session is open, and the listener exits.",
			"GitHub refuses a runner some months after the next version has appeared. The exit code is 7 if the listener's environment asks for it, and otherwise 1.",
			"actions/runner, BrokerHttpClient; executed with 2.336.0"),
		info(FaultRunnerCut, selectRunner, "",
			"Every call of the runner protocol, from the first token on, is cut: the JIT configuration was delivered, the listener never gets through.",
			"A pod whose way to GitHub is closed: a proxy, a policy, DNS.",
			"actions-runner-controller issue 3649, “waiting for a runner to come online”"),
		info(FaultRunnerStarved, selectRunner, "",
			"Decided when the runner is minted: it registers, is online, and is never given a job.",
			"The job it was minted for was cancelled or went to another runner, or GitHub's broker forgets a session: an idle runner that nothing will end.",
			"actions/runner has no idle time-out; actions-runner-controller issue 3420"),
		info(FaultRunnerCleanup, selectRunner+" delay", "delay",
			"Decided when the runner is minted: GitHub removes it once it has been offline for delay.",
			"An ephemeral runner is removed after a day offline, a JIT runner that never started as well.",
			"GitHub docs, “Self-hosted runners reference”"),
		info(FaultAssignDifferent, "job run installation", "",
			"The job is given to another runner than the one that was minted for it; it waits 5 s for one. percent does not apply.",
			"GitHub binds a job to any idle runner whose labels match.",
			"terraform-aws-github-runner issues 3130, 4262"),
		info(FaultBusyHidden, selectRunner+" delay", "",
			"The runner is shown as not busy for delay (1 min) after it was given a job.",
			"busy lags behind the truth.",
			"terraform-aws-github-runner pull 5228: busy=false on busy runners"),
		info(FaultRemoveBusy, selectRunner, "",
			"Removing the registration of a busy runner succeeds; its job runs on.",
			"A removal that races with an assignment: the 422 is not a lock.",
			"terraform-aws-github-runner issue 5085"),
		info(FaultRemoveRefused, selectRunner, "",
			"Removing the registration is refused with 422, as if it ran a job, although it runs none.",
			"A job that was given to a runner and not yet acquired, or one that GitHub has not seen the end of.",
			"actions-runner-controller pull 1204: 422 long after a job"),
	}
}

func jobFaults() []FaultInfo {
	return []FaultInfo{
		info(FaultJobCancel, selectRunner+" delay", "",
			"GitHub cancels the job delay after its runner acquired it.",
			"A person, or a newer run of the same concurrency group, cancels a job while a runner holds it.",
			"GitHub docs, “Workflow cancellation reference”"),
		info(FaultQueueTimeout, "job run installation delay", "delay",
			"GitHub cancels the job if no runner has acquired it delay after it was queued.",
			"A queued job lives for 24 hours.",
			"GitHub docs, “Actions limits”"),
	}
}
