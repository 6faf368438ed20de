// Package run is the container hook of GitHub's runner (ACTIONS_RUNNER_CONTAINER_HOOKS): one process for each of its commands, which starts
// in the runner's container, reads the command from standard input, and writes a response file. Its output is the log of the job's step.
//
// It decides nothing that the packages hook, plan and health decide; it asks the controller for containers (courier), and the guards of
// containers for everything else (guard/client). It has no network and no token: the volumes are all that it uses.
//
// What must survive between two commands is in the volume that no container of the job has (session.go). A prepare_job that fails leaves
// there what cleanup_job needs.
//
// Begin with run.go, then prepare.go.
package run
