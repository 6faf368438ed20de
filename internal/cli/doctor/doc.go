// Package doctor finds what is wrong with a set-up and says what to do about it. Gatherers read GitHub, the database and the cluster, and change
// nothing; pure functions judge the evidence. A check that could not run is reported, and never counts as passed. Begin with doctor.go.
package doctor
