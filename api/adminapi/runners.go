package adminapi

// PathRunners is where runner pods are: one is PathRunners + "/" + its namespace + "/" + its name; ?pool=NAMESPACE/NAME&stage=idle picks some.
const PathRunners = "/api/v1/runners"

// ResourceRunnerPods is the resource of access reviews for runner pods, with VerbRetire to retire one. Rights on the kinds Runner and
// RunnerPool are separate.
const (
	ResourceRunnerPods = "runnerpods"
	// ResourceRunnerLogs is the resource of access reviews for logs of failed runners, which may contain confidential output.
	ResourceRunnerLogs = "runnerlogs"
	VerbRetire         = "retire"
)

// ActionRetire is the action of an audit event about a retired runner. Its account is the runner's namespace and name.
const ActionRetire = "retire"

// States of a retired runner.
const (
	RunnerRetired  = "retired"
	RunnerFinished = "finished" // its job was completed already
)

// RetiredRunner is the response to POST …/retire.
type RetiredRunner struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Pool      string `json:"pool"`
	// State is retired or finished.
	State string `json:"state"`
	// Changed is false if it was being removed already: nothing was changed or audited.
	Changed bool `json:"changed"`
}
