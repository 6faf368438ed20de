package runnerpod

import "fmt"

// ReasonFinalizer is the reason of the condition DeletionProtected.
const ReasonFinalizer = "Finalizer"

// HeldMessage says what a deleted object waits for, and what to do when no controller runs. It is written while one does (POOL-13).
func HeldMessage(finalizer, namespace string) string {
	return fmt.Sprintf("a deleted object stays Terminating until its busy runners have finished; then the controller removes the finalizer %s. "+
		"If no controller runs any more, run: bullpen uninstall --runner-namespace %s", finalizer, namespace)
}
