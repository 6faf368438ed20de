// Package runner reconciles Runners: each has one registration, one Secret and one pod with its name, and never a second of any (RUN-7). A
// deleted Runner is released when GitHub has removed its registration, however long that takes (RUN-2).
//
// What a pass does is the list of phases in controller.go; each sees what the ones before have found out, and the status is
// written once, at the end. What registers, unregisters and observes is in package registered. Begin with controller.go.
//
// How many Runners there are is nothing to it: that is for their owners.
package runner
