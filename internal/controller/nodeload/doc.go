// Package nodeload counts the runners that stay on each node, of all owners and kinds, so that an owner that shrinks takes runners from the nodes
// that are nearest to being empty (SCALE-5). It knows no cluster. Begin with Book.
package nodeload
