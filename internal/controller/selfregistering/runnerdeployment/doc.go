// Package runnerdeployment keeps one RunnerReplicaSet for each template of a RunnerDeployment, and moves the runners from the
// former ones to the present one without ending a job (RUN-3). What it wants of each set is a pure function, PlanRollout;
// whatever happens to runners is the sets' own affair. Begin with rollout.go.
package runnerdeployment
