package fleet

import "time"

// Tail is what a runner that died had said last.
type Tail struct {
	PodUID, Namespace, Pod, Pool string
	EndedAt                      time.Time
	ExitCode                     *int32 // nil: not known
	Reason                       string // Kubernetes' word: Error, OOMKilled, Evicted, …
	Text                         string // whole lines, the last is the latest
	Cut                          bool   // there was more before it
}
