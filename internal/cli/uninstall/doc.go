// Package uninstall ends an installation from outside the cluster: it deletes the pools and the owners of runners, removes idle runners
// through the fence, waits for busy ones, and takes finalizers off when no controller is there to do so and nothing is left that they
// protect (POOL-13). Begin with Decide, which is pure.
package uninstall
