// Package runnerowner is the one controller behind every owner of self-registering runners (RUN-1): observe → plan → fence → act.
// What stands behind a runner, a Runner or a StatefulSet of one pod, is a Backing; everything else, how many there are, who goes
// and when, which questions GitHub is asked and how often, is here and in the engine (lifecycle), once for both.
//
// A pass speaks to the API server only. GitHub is spoken to by the crew of an owner (crew.go): each owner has its own, so that
// one whose GitHub hangs delays no other. What we did that no watch has shown yet is kept in memory (state.go), counts, and
// survives no restart: after one, the fence, the names and the preconditions keep runners safe.
//
// Begin with backing.go, then member.go, which is what one runner is to the engine, and controller.go.
package runnerowner
