// Package rebuild writes the claims again that a restored database lacks: from a fresh list of pods and from GitHub's own lists of runners,
// whose names contain the pod's (CLAIM-17). Every pod of ours with a registration has a live claim afterwards, charged to its account; a
// busy one has its job, if GitHub names it.
//
// It adds and never removes: pods without a registration are left to recovery. Begin with Rebuilder.Run, which package epoch's Keeper
// calls.
package rebuild
