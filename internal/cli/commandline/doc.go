// Package commandline gives cobra commands one way to refuse a command line: the error names the flag or the argument, says what is wrong with
// it, and says what to do. The library's own messages are not shown.
//
// Begin with prepare.go.
package commandline
