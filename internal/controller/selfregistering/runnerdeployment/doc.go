// Package runnerdeployment keeps one RunnerReplicaSet for each template of a RunnerDeployment, and moves the runners from the former ones
// to the present one without ending a job (RUN-3). The desired state of each set is a pure function, PlanRollout; the runners themselves
// are left to the sets. Begin with rollout.go.
package runnerdeployment
