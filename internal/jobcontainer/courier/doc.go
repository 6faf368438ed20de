// Package courier carries requests for a job's containers out of a runner's pod, and what was decided into it. Both sides of one volume are
// here: Client is the side of the container hook in the runner, Run is the process of a container that waits for one request, exits with it,
// and begins with what its predecessor's request was answered.
//
// # The volume
//
//	requests/ID         a sealed request, renamed into place; removed when its response is there
//	responses/ID        the response, JSON
//	failures/CONTAINER  why a container that was added does not run, JSON
//	closed              a sentence: no request is read any more
//
// It is mounted in the runner and in couriers, and not in the containers of the job.
package courier
