// Package rebuild writes the claims again that a restored database lacks: from a fresh list of pods and from GitHub's own
// lists of runners, which name the pod in each runner's name (CLAIM-17). Everything that is registered for a pod of ours
// has a live claim afterwards, charged to its account; what is busy has its job, where GitHub says which.
//
// It adds and never removes: what pods show without a registration anywhere is recovery's. Begin with Rebuilder.Run, which
// package epoch's Keeper calls.
package rebuild
