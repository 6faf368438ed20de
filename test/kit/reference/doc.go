// Package reference writes the generated pages of docs/reference: the commands, the kinds, the metrics and the
// configuration, each from the programs' own definitions. It reads what it is given and writes nothing itself. `make
// generate` runs scripts/reference and the tests of cmd/bullpen that have -update; the tests compare. It does not ship.
// Begin with cli.go.
package reference
