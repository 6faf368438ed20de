// Package servicename finds the names of a job's services. GitHub's runner does not send them to a container hook
// (https://github.com/actions/runner/issues/2783), but its worker writes the message of the job into its log before it starts the
// job. The log is not documented, so every name has a fallback: the base name of its image.
package servicename

// Declared is a service of the job's message.
type Declared struct {
	Name  string
	Image string // empty if it is an expression, or is not there
}

// FromWorkerLog returns the services of the job's message in the worker's log (_diag/Worker_<time>-utc.log), in order. It returns
// false if the message is not there, or if the services are an expression.
func FromWorkerLog(log []byte) ([]Declared, bool) { return fromWorkerLog(log) }

// Resolve returns one name for each image, which are those that the runner asks for: the declared services without those whose image
// is empty. All names are different and are host names.
func Resolve(declared []Declared, images []string) []string { return resolve(declared, images) }
