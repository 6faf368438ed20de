// Package dispatch hands workflow jobs to warm runner pods: intake of webhooks, matching of queued jobs to waiting
// polls, claims, minting, acknowledgement, retirement and completion.
//
// The package holds the policy and the order in which remote parties are asked; what it needs of them is declared in
// ports.go. Decisions are pure functions over values (resolve.go for GitHub's events, admit.go for admission,
// decide.go for a poll); the database executes them in its transactions, and dispatcher.go drives them.
//
// Ownership is one row in runner_claims, keyed by the pod's UID. An actor on a claim first takes a new generation of
// it by compare-and-set; every later write of that actor, and the answer itself, requires the generation still to
// hold.
package dispatch
