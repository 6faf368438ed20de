// Package download fetches one file at a time over HTTP: interrupted transfers are resumed, and a file gets its name only
// after its SHA-256 checksum matched.
//
// Begin with Client.File.
package download
