// Package registration registers self-registering runners at GitHub and removes them: with which credentials, in which place, by a
// just-in-time configuration or a registration token; and what GitHub's answers to "remove this runner" mean for the fence
// (lifecycle.Fence, RUN-2, EXCL-6).
//
// It knows GitHub's client and the engine's types, and no cluster: Secrets are read through an interface. Begin with registrar.go, which
// has the interface for callers; hub.go has one client for each set of credentials, place.go implements Registrar with it, removal.go has
// the table of answers, and roster.go lists once for all callers.
package registration
