// Package credential reads keys and secrets from files, and again whenever the files change, so that they are rotated without a restart. A
// kubelet updates a mounted Secret by one swap of a symbolic link; any other way to replace a file is noticed as well, because contents are
// compared and nothing is watched.
//
// Unusable content is refused, and the present one stays in use: a broken key must not stop a running fleet. It is logged once, and shown
// by a metric for as long as it lasts.
//
// It knows nothing of what the contents mean. Begin with Keeper.
package credential
