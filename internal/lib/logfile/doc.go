// Package logfile keeps a process's standard error in a file that others rotate by renaming it, as newsyslog does: no signal
// is needed, and panics, which go to standard error whatever a logger does, are in the file, too.
//
// Begin with Follow.
package logfile
