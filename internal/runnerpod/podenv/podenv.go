package podenv

// DispatchURL and the variables below configure the agent inside the pod.
const (
	DispatchURL = "BULLPEN_DISPATCH_URL" // base URL of the server
	TokenFile   = "BULLPEN_TOKEN_FILE"   // projected token, re-read at every request
	SharedDir   = "BULLPEN_SHARED_DIR"   // the volume that the pod's containers share
	StatusDir   = "BULLPEN_STATUS_DIR"   // the supervisor's signs, where it cannot write into the shared directory (macOS)
	PodName     = "BULLPEN_POD_NAME"
	PodUID      = "BULLPEN_POD_UID"
	WorkDir     = "BULLPEN_WORK_DIR"
	CAFile      = "BULLPEN_CA_FILE"      // certificates that the runner trusts beside those of its image
	JobDir      = "BULLPEN_JOB_DIR"      // the volume that a job's containers share with the runner; unset where a job can have none
	AwaitSocket = "BULLPEN_AWAIT_SOCKET" // a socket without which the runner takes no job: that of the pod's BuildKit daemon
	Resources   = "BULLPEN_RESOURCES"    // of the pod, for messages about a job's containers: "8 CPU, 16Gi"
	JobProfile  = "BULLPEN_JOB_PROFILE"  // the security profile of the job's containers; unset: Baseline
	ShmSize     = "BULLPEN_SHM_SIZE"     // of /dev/shm in the job's containers, in bytes; unset: the container runtime's
)

// RunnerToken is the variable of a static runner's registration token. It is blank in pods of ours (NET-3), and removed from the
// environment of the runner.
const RunnerToken = "RUNNER_TOKEN"

// FileJIT holds the JIT configuration in the shared volume (mode 0600, renamed into place). An empty file means "nothing to do".
const FileJIT = "jitconfig"
