// Package recovery puts right what an event that never came, a crash or a lost answer has left behind. It gathers the
// evidence about one pod or job, asks one pure function for a verdict, and acts on it through package dispatch; nothing
// else in the system recovers anything.
//
// It deletes nothing in Kubernetes: a pod that has to go is retired with a proof, and the controller removes it like any
// other. Begin with the table in table.go, whose words are those of evidence.go and verdict.go; the passes begin in
// pass.go.
package recovery
