// Package download fetches one file at a time over HTTP: interrupted transfers are resumed, and a file gets its name only
// after its SHA-256 checksum matched.
//
// It imports the standard library only, like package assets, its one user. Begin with Client.File.
package download
