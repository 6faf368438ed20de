// Package standin is a faithful local GitHub: what the fleet and its runners see of github.com, in one process, for
// development, demonstrations and fault tests. It serves
//
//   - the App and Actions REST API as go-github speaks it (bare and under /api/v3): App JWT, installation tokens,
//     JIT configurations, registration tokens, runners of repositories, organizations and enterprises, jobs, runs, logs, hook deliveries and redelivery, rate-limit headers;
//   - the registration of a GitHub App by a manifest: the pages at /settings/apps/new, and the exchange of the code (manifest.go);
//   - webhooks, signed, delivered within a deadline, never retried without a request;
//   - the runner protocol in both flows (connectionData → broker migration → broker, and the broker at once), the
//     run service and the results service, so that a genuine runner client given one JIT blob completes jobs;
//   - workflow files, evaluated by the package workflow beside it, and an admin API under /_standin/ (listed below).
//
// Like GitHub it binds a queued job to any idle runner whose labels match, never to the one that was minted for it; a job
// that is not acquired within a minute is queued again; an ephemeral runner is deleted after its one job, and a static one,
// which registered itself with a token (registration.go), takes the next.
//
// Begin at [New] and [Server.Run]; [Start] wraps both behind a loopback listener for tests. State lives in memory behind
// one mutex (state.go), deadlines in one heap (deadlines.go), jobs and runners meet in match.go, and what may happen to a
// job is in lifecycle.go. Time comes from Options.Now, randomness from Options.Random and Options.Pick; [Server.Tick] does
// whatever is due, so a test with a clock of its own never waits.
//
// # Admin API
//
// All answers are JSON; errors are {"message": "one sentence"}. With Options.AdminToken set, each call carries it as a
// bearer token. [AdminClient] speaks all of it.
//
//	GET    /_standin/state                      counts: jobs by state, lost jobs, jobs acquired more than once, runners
//	POST   /_standin/workflows                  submit a workflow: JSON [Submission], or multipart with a part "file"
//	GET    /_standin/runs[?repo=]               runs, oldest first
//	GET    /_standin/runs/{id}[?wait=20s]       one run; with wait, answered when it is done or the time is over
//	POST   /_standin/runs/{id}/cancel           cancel a run
//	POST   /_standin/runs/{id}/approve          queue the jobs of a run that was submitted with hold_for_approval
//	GET    /_standin/jobs[?run_id=&status=]     jobs with queued, started, completed, runner, acquisitions, lost
//	GET    /_standin/jobs/{id}                  one job
//	GET    /_standin/jobs/{id}/log              its log as text
//	GET    /_standin/jobs/{id}/steps[?have=1:20]  its log by steps, also while it runs, without the first 20 lines of step 1: a [JobLogView]
//	POST   /_standin/jobs/{id}/cancel           cancel one job
//	POST   /_standin/jobs/{id}/lose             fail a running job whose runner is dead
//	GET    /_standin/runners                    every registration
//	GET    /_standin/deliveries                 webhook deliveries, newest first
//	GET    /_standin/ledger                     everything GitHub saw of every job, registration and webhook: a [Ledger]
//	GET    /_standin/stats                      REST calls per route and answer, tokens, mints; DELETE sets them to zero
//	GET    /_standin/faults                     faults in force; POST adds a [Fault], DELETE /_standin/faults[/{id}] removes
//	GET    /_standin/installations              installations; POST adds one (and announces it)
//	POST   /_standin/installations/{id}/announce  send its installation webhook again
//	POST   /_standin/installations/{id}/suspend, …/unsuspend  as the account's owner may, with the webhook
//	POST   /_standin/enterprises                add an enterprise of some accounts: an [Enterprise]
//	POST   /_standin/tokens                     make a person's token: a [PersonalToken]; DELETE /_standin/tokens/{name} ends it
//	DELETE /_standin/installations/{id}         uninstall the App, with the webhook; POST installs it again
//	POST   /_standin/repositories/{owner}/{repo}/rename  {"name"}: as its owner may; GitHub sends the App no event
//	PUT    /_standin/webhook                    {"url","secret"}: where webhooks go from now on
//
// # Faults
//
// A [Fault] makes something go wrong: on REST calls, on runner-protocol calls (their routes begin with /_services/), with
// webhooks, runners and jobs. It is put in force by the admin API, or by a rule of one [Submission]. [FaultCatalogue] says
// what each kind does and which fact it imitates; docs/internals/github-stand-in.md is made from it.
package standin
