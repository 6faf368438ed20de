// Package lifecycle plans for every owner of runners: which to create, which to ask the fence for, which to delete. The
// plan is a pure function of what was observed and a clock reading; it knows no cluster, no database and no GitHub.
//
// Begin with plan.go; roll.go has what depends on number, template and age. runner.go has the inputs and outputs, set.go
// the orders in which a plan reads the runners, and fence.go the Fence port: only the holder of its grant deletes a runner.
// leave.go is how far one removal has come (asked, answered, deleted), for every kind of owner, and pace.go how often its
// fence is asked.
//
// # What a plan does with each stage
//
//   - booting: counts. It is asked for when it is unfit or past a timeout, when it is of an older template or too old
//     (at once: it does not serve yet), and when there are too many. One that was created and not yet observed counts and
//     is left alone.
//     Where runners register themselves (Wish.KeepBooting, KeepPending), one that a node has taken is left alone until its time is over.
//   - idle: counts, and serves. It is asked for at once when it is unfit; within the limits of a roll when it is of an
//     older template (and its node has the images of the present one), too old, or idle for too long; and when there are too many.
//   - busy: counts, serves, and is in no plan (EXCL-4).
//   - leaving, asked for: counts, does not serve, and stays the victim while there is a reason to remove it. Every plan finds
//     the reason again from what the runner shows beneath (Shown, Unfit). When the reason has passed, the request is
//     withdrawn, because until the fence grants it the runner may be given work.
//   - leaving, granted: counts, and is deleted. Nothing revokes a grant.
//   - leaving, deleting: counts until the leave timeout.
//   - finished: holds no place, and is deleted.
//   - lost: holds no place, and is asked for; granted, it is deleted (POOL-7). So its replacement does not wait (POOL-4),
//     and until the fence has proof there may be more runners than desired, by the lost ones.
//
// A paused owner does the last two only. One that is being deleted asks for everything that shows no work, and creates
// nothing.
//
// # What a plan relies on
//
// There are no counters of expected creations and deletions. An owner's observer puts a runner it has just created into the
// set at once, marked Expected, and marks one whose deletion was accepted as Deleting; both count until the cache shows
// otherwise. These marks survive no restart and need not: after one, the fence and the deletion's preconditions keep the
// fleet safe.
package lifecycle
