// Package faultpoint kills this process at a named instant, so that tests reach the crashes that no signal from outside
// would hit: after a row was committed and before any client was notified, between two deletions that belong together.
//
// [Reached] does nothing, and is compiled to nothing, unless the binary is built with the tag "faultpoints" (make faults).
// With it, files in the directory that the environment variable BULLPEN_FAULTPOINT_DIR names arm the faults:
//
//   - a file named like a point kills the next process that passes it with SIGKILL, so that nothing deferred runs. A number
//     in the file says which pass, counted in each process from the moment the file is there; an empty file is the first.
//     A file "mint-answered.1234" means PID 1234 alone. Exactly one process removes the file first, so the restarted
//     process need not disarm anything.
//   - a file "clock", or "clock.1234", holds a duration that [Now] adds to the time, such as -90s: a replica whose clock
//     is wrong. It is read again ten times a second.
//
// Without the tag nothing of this module may behave otherwise: a test searches the binary for it. Begin with [Points];
// test/kit/chaos arms them from tests.
package faultpoint
