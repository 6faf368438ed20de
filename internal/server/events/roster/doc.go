// Package roster matches GitHub's own lists of runners to pods by the prefix of their names, which holds the pod's UID: the
// evidence that is left when our rows are lost, or are not trusted (EXCL-4, EXCL-6, POOL-7).
//
// It returns for each pod which registrations GitHub shows for it, and whether it is proven that there is none in any scope that it could
// have been registered in. It decides nothing and removes nothing. Its dependencies are interfaces. Begin with Reader.Look.
package roster
