package runnerpod

import "fmt"

// ReasonFinalizer is the reason of the condition DeletionProtected.
const ReasonFinalizer = "Finalizer"

// HeldMessage says what a deleted object waits for, and what to do when no controller runs. It is written while one does (POOL-13).
func HeldMessage(finalizer, namespace string) string {
	return fmt.Sprintf("When deleted, the object stays Terminating until its busy runners finish; then the controller removes the finalizer %s. "+
		"If the controller is uninstalled, run: bullpen uninstall --runner-namespace %s", finalizer, namespace)
}
