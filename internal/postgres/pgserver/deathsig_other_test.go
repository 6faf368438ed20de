//go:build !linux

package pgserver

const deathSignal = false
