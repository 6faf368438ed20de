// Package credential takes keys and secrets from files into use, and again whenever the files change, so that they are
// rotated without a restart. What a kubelet keeps of a Secret changes by one swap of a symbolic link; any other way to
// replace a file is noticed as well, because contents are compared and nothing is watched.
//
// What cannot be used is refused, and what was in use stays: a broken key must not stop a fleet that works. It is logged
// once, and shown by a metric for as long as it lasts.
//
// It knows nothing of what the contents mean. Begin with Keeper.
package credential
