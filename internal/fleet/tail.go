package fleet

import "time"

// Tail has the last log lines of a failed runner.
type Tail struct {
	PodUID, Namespace, Pod, Pool string
	EndedAt                      time.Time
	ExitCode                     *int32 // nil: not known
	Reason                       string // Kubernetes' word: Error, OOMKilled, Evicted, …
	Text                         string // whole lines, the last is the latest
	Cut                          bool   // there was more before it
}
