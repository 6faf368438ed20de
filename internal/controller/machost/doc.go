// Package machost makes the Macs that MacHosts name nodes of the cluster, and keeps them as their configuration says.
//
// What is done next is a pure function of what is seen and of the time ([decide] in decide.go); what is remembered between two looks
// is in the MacHost's status and in a mark on its Node, and changes by pure functions, too (memory.go). So a controller may die at any instant and
// another goes on. The shell around it (controller.go) reads, acts and writes. An attempt takes minutes: it runs in a
// goroutine of the [crew], of which there is a bounded number, and never holds a reconcile up. Attempts go through the port
// [Bootstrapper], behind which is package machost/remote.
//
// It ends no pod and deletes no Node. Nodes are cordoned and uncordoned, and only what it has cordoned itself is uncordoned. No text of a
// Mac is written anywhere before what is secret has been taken out (scrub.go, HOST-6).
//
// Begin with decide.go.
package machost
