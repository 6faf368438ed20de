// Package nodes knows what the fleet needs to know of a node: whether a pool's pods may run on it, whether it is usable
// and if not why, and how many of them it has room for.
//
// Everything here is a pure function of a corev1.Node and a Placement, which is read from a pool once. Begin with placement.go; taints.go
// finds nodes that are about to be removed.
package nodes
