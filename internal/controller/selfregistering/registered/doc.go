// Package registered is the common part of the controllers of self-registering runners, for both kinds of backing, a Runner or a
// StatefulSet with one pod (RUN-1): the view of one pod and its stage for the engine (view.go, stage.go); the registration and the Secret
// of one runner (prepare.go); the fence, which is GitHub's own "remove this runner" (fence.go, RUN-2); and the controller that unregisters
// pods that other clients delete, or that have no owner (pods.go).
//
// Decisions that need no cluster are pure: view.go and stage.go. It plans nothing: that is lifecycle's, through each owner's controller.
// Begin with view.go.
package registered
