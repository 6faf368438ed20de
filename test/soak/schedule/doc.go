// Package schedule returns what a soak does, when, and to which target, as a pure function of a seed: the same seed gives the same jobs and
// the same faults at the same moments, so that a failure can be reproduced. The system's reaction depends on the machine it runs on, of
// course.
//
// It knows no process and no API: kinds.go lists what may go wrong, and package soak makes it happen. Begin with Make.
package schedule
