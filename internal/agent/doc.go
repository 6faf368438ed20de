// Package agent is what runs inside a runner pod: the poller, which trades the pod's token for one JIT configuration and
// stages it, and the supervisor, which waits for that file in the runner's container, runs the runner once and keeps its
// exit code. Beside them: what shows that no job has started, and the installer that puts the binary into the shared volume.
//
// Names of variables and files are passed in. Begin with poll.go and supervise.go.
//
// # The shared directory
//
//	jitconfig.staged  the configuration, staged by the poller by rename while it acknowledges and waits for the pod's owner label;
//	                  then renamed to jitconfig. If it stays, its poller has died, and the supervisor takes it
//	jitconfig         released: the supervisor starts the runner, and removes it; empty: "nothing to do"
//	jitconfig.taken   empty: an answer was staged here and taken; the poller never asks again
//	runner.idle       the supervisor waits: exists as long as no configuration has reached this container. The poller
//	                  asks for work only while it exists
//	runner.jobless    no job has started in this container: the container idle runs while it exists, and readiness probes
//	                  check for it. Locked by the supervisor. Removed by the hook, or by the supervisor when it sees the
//	                  marker or the runner's worker, or exits; absent from the start where a job could not be detected
//	runner.exited     the supervisor exited before a job started: a container idle that starts later exits, too
//	job-started.sh    the hook that the runner calls before a job's first step
//	job-started       made by that hook
//	job-completed.sh  the hook that a static runner calls after a job's last step; job-completed is made by it
//	runner.last       the static runner was asked to stop: its job is the last. runner.held: its listener is held for that
//
// A self-registering runner has no poller: its configuration, or what it registers itself with, is in a Secret that is
// mounted read-only in its container alone, and the shared directory is the status directory. A second start in its pod
// starts nothing.
//
// # A runner in a virtual machine
//
// There the runner's container is the guest of a host on which the poller runs as a process. The shared directory is
// read-only in the guest, and the signs (all of the above but jitconfig) are in a status directory beside it, which the
// guest may write. Guest, in guest.go, is what the host starts in the guest: it runs the container's command and reports
// its end. Package guestshare has the files through which both communicate.
package agent
