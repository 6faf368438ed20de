// Package registration is how runners that register themselves come to GitHub and go from it: with which credentials, in
// which place, by a just-in-time configuration or a registration token; and what GitHub's answers to "remove this runner"
// mean for the fence (lifecycle.Fence, RUN-2, EXCL-6).
//
// It knows GitHub's client and the engine's words, and no cluster: what it needs of Secrets is a port. Begin with
// registrar.go, which has the port of those who use this package; hub.go has one client for each set of credentials, place.go
// is a Registrar over it, removal.go has the table of answers, and roster.go lists once for everybody who asks.
package registration
