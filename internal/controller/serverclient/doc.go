// Package serverclient speaks to the server for the controller: it asks whether runners may be removed, reports those that
// have ended, and reads what is in demand. It implements lifecycle.Fence.
//
// Begin with client.go.
package serverclient
