// Package podsigns reads what every runner pod shows alike, whatever stands behind it: whether a job has reached its runner (EXCL-4),
// whether it is called ended only because its node is gone (POOL-7), what it waits for. It is pure. Begin with WasReady.
package podsigns
