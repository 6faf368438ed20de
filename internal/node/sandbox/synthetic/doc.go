// Package synthetic is a sandbox without processes, for load tests and for tests of the node agent: containers exist in
// memory, run for as long as an annotation of their pod says or until told, and end as told.
//
// The annotation synthetic.bullpen.dev/<container> is a comma-separated list:
//
//	exit=3             the exit code when the container ends by itself (0)
//	after=2s           how long it runs; without it, until Machine.Exit or a signal
//	ignore-terminate   only Kill ends it
//	exec=1             what Exec returns (0)
//
// and synthetic.bullpen.dev/prepare=2s makes Prepare take that long; `never` makes it hang until it is cancelled.
//
// It must not import package node, client-go or another back end. Begin with Machine in synthetic.go.
package synthetic
