// Package guestshare is how the node agent of a Mac and the agent inside a virtual machine communicate: through the files
// of two shared directories, and nothing else.
//
//	bullpen/            read-only in the guest, written by the host alone
//	  bullpen           the agent's binary
//	  guest.json        what to run (Spec)
//	  jitconfig         staged by the poller, as jitconfig.staged until it is released
//	  terminate         an order: ask the command to end
//	  exec-ID.end       an order: end the command ID of Exec
//	status/             written by the guest
//	  heartbeat         there as soon as the guest's agent runs, rewritten while it does
//	  runner.log        output of the command
//	  runner.log.times  how long the log was when: a line of nanoseconds since 1970 and bytes for each second in which it grew
//	  exit.json         how the command ended (Report)
//	  exec-ID.json      how a command of `kubectl exec` or a probe ended (Report)
//	  guest.log         what the guest's agent itself has to say
//	  …                 the signs of the supervisor, see package agent
//
// A customer's job may write anything into status. So its files are read through this package only: bounded in size, never
// through a link that leads out of the directory, only plain files, and their content is trusted for no more than this one
// runner's end, log and liveness.
//
// Begin with Spec and Report.
package guestshare
