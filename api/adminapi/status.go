package adminapi

import (
	"cmp"
	"strconv"
	"strings"
)

// Conclusions are those that GitHub gives a completed job, and stale: the server's own, of a job that GitHub no longer reports.
func Conclusions() []string {
	return []string{"success", "failure", "cancelled", "skipped", "timed_out", "action_required", "neutral", "startup_failure", "stale"}
}

// Failed says whether a conclusion is one of a job that went wrong.
func Failed(conclusion string) bool {
	return conclusion == "failure" || conclusion == "timed_out" || conclusion == "startup_failure"
}

// Status is the job's state as users read it: of a completed job its conclusion.
func (j Job) Status() string {
	return strings.ReplaceAll(cmp.Or(j.Conclusion, j.State), "_", " ")
}

// Runner is the name that its runner has everywhere: that of its pod. A runner that is no pod of a pool has its name at GitHub only.
func (j Job) Runner() string { return cmp.Or(j.Pod, j.RunnerName) }

// ExitCode names an exit code, with the signal that it stands for.
func ExitCode(code int32) string {
	signals := map[int32]string{130: "SIGINT", 134: "SIGABRT", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}
	text := "code " + strconv.Itoa(int(code))
	if name, ok := signals[code]; ok {
		text += " (" + name + ")"
	}
	return text
}
