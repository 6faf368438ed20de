// Package logfile keeps a process's standard error in a file that other programs rotate by renaming it, as newsyslog does.
// It needs no signal, and panics, which bypass the logger, are in the file, too.
//
// Begin with Follow.
package logfile
