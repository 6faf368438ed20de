// Package synthetic is a sandbox without processes, for load tests and for tests of the node agent: containers exist in memory, and run and
// exit as an annotation of their pod or a test says.
//
// The annotation synthetic.bullpen.dev/<container> is a comma-separated list:
//
//	start=500ms        how long it takes to start
//	after=2s           how long it runs; without it, until Machine.Exit or a signal
//	exit=3             the exit code when the container ends by itself (0)
//	ignore-terminate   only Kill ends it
//	ready=1s           Exec, and so a readiness probe, fails until it has run for so long
//	unready=10s        and again from here on
//	exec=1             what Exec returns otherwise (0)
//	log=hello          a line that it writes into its log at once; Machine.Write adds more
//
// and synthetic.bullpen.dev/prepare=2s makes Prepare take that long; `never` makes it hang until it is cancelled. Where a
// timetable is not enough, Machine.Install puts a Program, which is code of this process, in the place of each container
// of a name: a load test's pods poll the real server that way.
//
// With streams Exec runs a Script and nothing else. There are no terminals.
//
// The conformance suite runs over both in full. What a synthetic pod cannot show: that a process group is ended with its
// children, that a command which cannot be executed is an exit, and that records survive the end of the process.
//
// Begin with Machine in synthetic.go.
package synthetic
