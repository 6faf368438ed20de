// Package doctor finds what is wrong with a set-up: at GitHub, in the database, and in the cluster. Gatherers look and change
// nothing; pure functions judge what they saw. What could not be looked at is told as that, and never passes for being right.
//
// It decides nothing about runners. Begin with doctor.go.
package doctor
