package adminapi

// PathRunners is where runner pods are: one is PathRunners + "/" + its namespace + "/" + its name; ?pool=NAMESPACE/NAME&stage=idle picks some.
const PathRunners = "/api/v1/runners"

// ResourceRunnerPods is what Kubernetes is asked about for runner pods, with VerbRetire for retiring one. Runner and RunnerPool are kinds of
// the group themselves, and a right on them is another thing.
const (
	ResourceRunnerPods = "runnerpods"
	// ResourceRunnerLogs is what Kubernetes is asked about for the last lines of runners that died: what jobs print may be nobody else's
	// business.
	ResourceRunnerLogs = "runnerlogs"
	VerbRetire         = "retire"
)

// ActionRetire is the action of an audit event about a runner that an operator retired. Its account is the runner's namespace and name.
const ActionRetire = "retire"

// RetiredRunner is the answer to POST …/retire.
type RetiredRunner struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Pool      string `json:"pool"`
	// State is retired, or spent where its work was over already.
	State string `json:"state"`
	// Changed is false where it was on its way already: nothing was done, and nothing is audited.
	Changed bool `json:"changed"`
}
