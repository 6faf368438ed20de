// Package runnerowner is the one controller behind every owner of self-registering runners (RUN-1): observe → plan → fence → act. The
// object behind a runner, a Runner or a StatefulSet of one pod, is a Backing; everything else, their number, their removal and the requests
// to GitHub, is here and in the engine (lifecycle), once for both.
//
// A pass sends requests to the API server only. Requests to GitHub are made by the crew of an owner (crew.go): each owner has its own, so
// that one whose GitHub hangs delays no other. Actions that no watch has shown yet are kept in memory (state.go), count, and survive no
// restart: after one, the fence, the names and the preconditions keep runners safe.
//
// Begin with backing.go, then member.go, which is one runner for the engine, and controller.go.
package runnerowner
