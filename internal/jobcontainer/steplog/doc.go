// Package steplog writes lines of a step's log for GitHub's runner: workflow commands (`::error::`), and text from outside in such
// a way that the runner takes no command from it (ActionCommand.cs).
package steplog
