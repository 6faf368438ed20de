// Package registration is how runners that register themselves come to GitHub and go from it: with which credentials, in
// which place, by a just-in-time configuration or a registration token; and what GitHub's answers to "remove this runner"
// mean for the fence (lifecycle.Fence, RUN-2, EXCL-6).
//
// It knows GitHub's client and the engine's words, and no cluster: what it needs of Secrets is a port. Begin with
// registrar.go; hub.go has one Registrar for each set of credentials, and removal.go the table of answers.
package registration
