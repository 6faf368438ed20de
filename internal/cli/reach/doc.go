// Package reach explains why a request to a cluster or a server failed, in the words of the command line and not in those of the libraries
// that it uses. Begin with reach.go.
package reach
