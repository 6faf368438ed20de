// Package recovery repairs the effects of events that never came, crashes and lost responses. It gathers the evidence about one pod or job,
// asks one pure function for a verdict, and acts on it through package dispatch; nothing else in the system recovers anything.
//
// It deletes nothing in Kubernetes: a pod that must be deleted is retired with a proof, and the controller removes it like any other. Begin
// with the table in table.go, whose words are those of evidence.go and verdict.go; the passes begin in pass.go.
package recovery
