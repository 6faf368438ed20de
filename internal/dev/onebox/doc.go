// Package onebox is the one-machine mode: it starts a real control plane, a private Postgres, the GitHub stand-in and
// Bullpen's own server, controller and node agent as separate processes of one binary, each with an identity that may
// do no more than its part needs, and everything in one state directory.
//
//   - layout.go, lock.go, record.go: the state directory, who owns it, and what runs in it (on childproc)
//   - plan.go: which processes, with which arguments (pure)
//   - supervise.go: starting, watching, restarting and stopping them
//   - identity.go, manifests.go: ServiceAccount tokens, and what is applied to the cluster
//   - gate.go: the cluster's network policies, enforced between runners and server
//   - options.go; box.go with fleet.go: Start and Stop of the whole, infra.go: what it stands on; down.go and leftovers.go: the same from outside
//   - containers.go, containers_linux.go, hostimages_linux.go: runners in containers, on a node of package realnode; load_linux.go: images for it
//   - drain.go, service.go: a stop that waits for jobs; the unit of systemd
//   - demo.go with workflow.go, restarts.go, table.go and summary.go: what `bullpen demo` does and how it judges
//
// It decides nothing about runners: the same server, controller and node agent that run in production do. It speaks to
// the parts as processes. Begin with box.go.
package onebox
