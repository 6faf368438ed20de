// Package pool keeps a RunnerPool's pods at the number and the template that its spec says, and never removes one
// that may be working.
//
// The shape is observe, plan, fence, act. tracker.go keeps what was observed, a value per pod, up to date with each
// event, so that a pass costs what it decides and not what the pool holds (P9); plan-input.go turns pods into those
// values; plan.go calls lifecycle for the plan and records what a pass is about to do; children.go creates; questions.go
// asks the fence, and removals.go reports ends and deletes, beside the passes, so that a slow server delays no replacement
// (POOL-4). Pods are deleted by removal.Remover, the one place of the whole system that deletes a runner pod (EXCL-2).
// nodes.go knows which runners are on which node and what happens to them when they should leave it, lost.go what happens when the node is
// gone (POOL-7), images.go on which nodes the images of a pool are (spec.imagePrepull), starts.go how many may be starting on the nodes of a
// fleet. status.go and conditions.go have what users should know, with the findings of stuck.go (pods that are not deleted in time) and
// rivals.go (pools that contend for a label). Begin with controller.go.
package pool
