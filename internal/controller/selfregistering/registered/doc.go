// Package registered is what the controllers of self-registering runners have in common, whatever stands behind a runner,
// a Runner or a StatefulSet of one pod (RUN-1): what one pod shows, and the stage that this is for the engine (view.go,
// stage.go); the registration and the Secret of one runner (prepare.go); the fence, which is GitHub's own "remove this
// runner" (fence.go, RUN-2); and the controller that unregisters pods that others delete, or that nobody owns (pods.go).
//
// What can be decided without a cluster is: view.go and stage.go are pure. It plans nothing: that is lifecycle's, by way of
// each owner's controller. Begin with view.go.
package registered
