// Package plan decides what becomes of the containers that a job asks for. It is a function of values.
//
// ForJob or ForStep read what the runner asks for, refuse what can't be done, and name the images that are wanted. With the answer,
// which has the configuration of each image, Draft.Complete says what to tell the guard of each container, and everything that
// emulates a network of Docker: forwarded ports, names of hosts, volumes.
//
// Errors are *Error: sentences for the job's log that say what to do. The texts of what only shows later are functions in texts.go.
package plan
