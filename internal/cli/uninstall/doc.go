// Package uninstall removes an installation from outside the cluster: it deletes the pools and the owners of runners, removes idle runners
// through the fence, waits for busy ones, and removes finalizers when no controller is left to do so and they protect nothing any longer
// (POOL-13). Begin with Decide, which is pure.
package uninstall
