// Package faultpoint kills this process at a named instant, so that tests reach the crashes that no signal from outside
// would hit: after a row was committed and before anybody heard of it, between two deletions that belong together.
//
// [Reached] does nothing, and is compiled to nothing, unless the binary is built with the tag "faultpoints" (make
// faults). With it, the folder that the environment variable BULLPEN_FAULTPOINT_DIR names says what happens:
//
//   - a file named like a point kills the next process that passes it with SIGKILL, so that nothing deferred runs. A number
//     in the file is which passing, counted in each process from the moment the file is there; an empty file is the first.
//     A file "mint-answered.1234" means the process 1234 alone. The file is removed first, by exactly one process: whoever
//     starts the dead process again need not disarm anything.
//   - a file "clock", or "clock.1234", holds a duration that [Now] adds to the time, such as -90s: a replica whose clock
//     is wrong. It is read again ten times a second.
//
// Without the tag nothing of this module may behave otherwise: a test searches the binary for it. Begin with [Points];
// test/kit/chaos arms them from tests.
package faultpoint
