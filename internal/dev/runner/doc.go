// Package runner is a small runner for development and tests: a client of GitHub's runner protocol that takes one
// job, runs its steps, and exits with the codes of GitHub's own listener. Scripts run with bash or sh, and containers by a container hook. Production pods run
// GitHub's runner; the one-machine mode and the tests run this one, so that they need nothing to download.
//
// It isolates nothing: a step is a process of the same user with the same files. What it does carefully is the
// protocol: the session, the long poll, the job's lock, cancellation, logs, and the end that is reported before it
// exits.
//
// The job message and the expression language are in the workflow package of the stand-in, and both sides share them.
// A container hook (containers.go, hookcall.go) is called as GitHub's worker calls it: the same commands in the same order with the same
// input, the same strictness with its answers, and the same texts for what fails. Its input is compared with recorded ones of GitHub's
// worker in the tests of the stand-in.
//
// Begin with runner.go (the listener), then job.go (one job) and steps.go (its steps).
package runner
