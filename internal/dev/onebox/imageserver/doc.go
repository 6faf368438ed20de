// Package imageserver serves the manifests and configurations of a node's images, in the protocol of registries (OCI distribution). In the
// one-machine mode the controller queries it as a mirror of every registry, so that jobs can use images that no registry has, or that were loaded
// from a file. It serves no layers: the node has those.
//
// Begin with Handler.
package imageserver
