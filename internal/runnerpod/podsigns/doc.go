// Package podsigns reads the signs that all runner pods show alike: whether a job has reached the runner (EXCL-4), whether
// the pod is marked ended only because its node is gone (POOL-7), what it waits for. It is pure. Begin with Taken.
package podsigns
