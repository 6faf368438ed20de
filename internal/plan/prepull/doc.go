// Package prepull knows on which nodes the images of a pool's present template are, as its pre-pull pods show. A roll waits for them on each
// node, and new runners prefer nodes that have them. It is a value that is kept up to date event by event, and knows no cluster.
//
// Begin with set.go; report.go has what conditions and new runners say of it.
package prepull
