// Package runner reconciles Runners: each has one registration, one Secret and one pod with its name, and never a second of any (RUN-7). A
// deleted Runner is released when GitHub has removed its registration, however long that takes (RUN-2).
//
// The phases of a pass are listed in controller.go; each sees the results of the ones before, and the status is written once, at the end.
// Registration, its removal and observation are in package registered. Begin with controller.go.
//
// It does not know how many Runners there should be: that is for their owners.
package runner
