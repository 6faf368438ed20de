// Package runner is a small runner for development and tests: a client of GitHub's runner protocol that takes one
// job, runs its `run:` steps with bash or sh, and exits with the codes of GitHub's own listener. Production pods run
// GitHub's runner; the one-machine mode and the tests run this one, so that they need nothing to download.
//
// It isolates nothing: a step is a process of the same user with the same files. What it does carefully is the
// protocol: the session, the long poll, the job's lock, cancellation, logs, and the end that is reported before it
// exits.
//
// The job message and the expression language are in the workflow package of the stand-in, and both sides share them.
// Begin with runner.go (the listener), then job.go (one job) and steps.go (its steps).
package runner
