// Package machost makes the Macs that MacHosts name nodes of the cluster, and keeps them as their configuration says.
//
// The next action is a pure function of the observed state and the time ([decide] in decide.go); the memory between two passes is in the
// MacHost's status and in an annotation of its Node, and changes by pure functions, too (memory.go). So a controller may die at any instant
// and another continues. The shell around it (controller.go) reads, acts and writes. An attempt takes minutes: it runs in a goroutine of
// the [crew], whose number is bounded, and never blocks a reconcile. Attempts use the interface [Bootstrapper], which package
// machost/remote implements.
//
// It stops no pod and deletes no Node. It cordons Nodes, and uncordons only those that it has cordoned itself. No text of a Mac is written
// before secrets have been removed from it (scrub.go, HOST-6).
//
// Begin with decide.go.
package machost
