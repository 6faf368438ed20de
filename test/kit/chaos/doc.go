// Package chaos breaks what Bullpen stands on, for tests: connections, Postgres, the API server, the clock of a replica,
// the disk, and the product's own processes at named instants. Each tool does one thing when it is called and undoes it on
// request; what is broken when, and what has to come of it, is the caller's business.
//
//   - [Proxy] stands between two TCP peers: it cuts, refuses, delays, and holds one direction (a half-open connection) or both
//     (a black hole).
//   - [Postgres] ends a server fast, immediately or by SIGKILL, and puts a database back to an older dump while others use it.
//   - [KillAPIServer] takes the API server away for a while; [controlplane.ControlPlane.Restart] does it in order.
//   - [Points] makes a binary that was built with the tag faultpoints (make faults) die at a named instant, or gives it a
//     clock that is wrong.
//   - [Disk] is a small file system that can be filled up.
package chaos
