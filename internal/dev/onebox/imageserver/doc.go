// Package imageserver answers what images a node has, and how they are run, in the protocol of registries (OCI distribution). In the one-machine
// mode the controller asks it as a mirror of every registry, so that jobs use images that no registry has, or that were loaded from a file. It
// serves manifests and configurations, and no layers: the node has those.
//
// Begin with Handler.
package imageserver
