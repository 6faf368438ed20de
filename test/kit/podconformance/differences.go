package podconformance

import (
	"fmt"
	"strings"
)

// Difference is a row in which a node does not do what a kubelet does.
type Difference struct {
	// Row is the row's name.
	Row string
	// Here is what the node does instead, Why is the reason: both are parts of a sentence.
	Here, Why string
	// Refusal is part of the message with which the node refuses the pod, if it does. The pod's containers then wait with that message.
	Refusal string
}

// Kubelet lists the differences of a kubelet with containerd: none.
var Kubelet []Difference

const (
	noRestarts   = "a container that ran a job must not run another"
	noNamespaces = "the `process` sandbox shares the machine's process IDs"
	noIsolation  = "the `process` sandbox is no isolation"
)

// NodeAgent lists the differences of Bullpen's node agent with the process sandbox.
var NodeAgent = []Difference{
	{Row: "Users/RootWithoutCapabilities", Here: "root keeps all capabilities", Why: noIsolation},
	{Row: "Files/LinksToData", Here: "keys are plain files", Why: "their content does not change while the pod runs"},
	{Row: "Files/MemoryIsTmpfs", Here: "`medium: Memory` is a directory on disk", Why: noIsolation},
	{Row: "Env/ServiceLinks", Here: "only the Service `kubernetes` has variables", Why: "the agent watches no Services"},
	{Row: "Process/PostStart", Here: "the pod is rejected", Why: "no runner pod has one", Refusal: "lifecycle hook"},
	{Row: "Process/PIDOne", Here: "the container has a process ID of the machine", Why: noNamespaces},
	{Row: "Grace/NoHandler", Here: "TERM ends it at once, with code 143", Why: noNamespaces},
	{Row: "Deletion/NoFinalizer", Here: "the agent's finalizer `bullpen.dev/vm-cleanup` holds the pod until its sandbox is gone", Why: "no virtual machine outlives its pod"},
	{Row: "Sidecars/Restarted", Here: "the pod goes on without it, and fails if a container has not started yet", Why: noRestarts},
	{Row: "Probes/UnhealthyEvent", Here: "no Event for a readiness probe", Why: "each Event is a write to the API server"},
	{Row: "Status/Resources", Here: "not reported", Why: "resources are not limited, and a pod is not resized"},
	{Row: "Status/User", Here: "not reported", Why: "the back ends do not return it"},
	{Row: "Restart/OnFailure", Here: "the pod fails with reason `ContainerEnded`", Why: noRestarts},
	{Row: "Restart/Always", Here: "the pod fails with reason `ContainerEnded`", Why: noRestarts},
	{Row: "Logs/Previous", Here: "no container has a previous log", Why: noRestarts},
}

// Table renders differences as the rows of a Markdown table.
func Table(differences []Difference) (string, error) {
	all := rows()
	if _, err := byRow(all, differences); err != nil {
		return "", err
	}
	var table strings.Builder
	table.WriteString("| test | a kubelet | the node agent | reason |\n|---|---|---|---|\n")
	for _, r := range all {
		for _, d := range differences {
			if d.Row == r.name {
				fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", r.name, r.fact, d.Here, d.Why)
			}
		}
	}
	return table.String(), nil
}
