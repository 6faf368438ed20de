// Package deep tells tests whether to be thorough: to kill a process at each of its steps rather than at some, to walk large state spaces,
// and to run for minutes. `make test-deep` says so by an environment variable; `make test` runs a small real instance of each.
package deep
