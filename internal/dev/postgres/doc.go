// Package postgres runs a private, real PostgreSQL from binaries that are already installed: the database of the
// one-machine mode and of the tests. Its data lives in one directory, it listens on a Unix socket in a directory that only
// its owner may enter, it asks for a generated password, and it does not outlive the process that started it.
//
// It runs no migrations; those are in internal/server/ledger. Begin with Start; binaries.go finds the installation, server.go owns the process, leftovers.go
// handles the remains of a killed owner.
package postgres
