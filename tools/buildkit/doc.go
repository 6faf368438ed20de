// Package buildkit pins BuildKit and docker buildx, which tests of image builds run (test/realnode). It is a module of its own, so that its
// dependencies do not reach the other tools. "make verify" leaves its go.mod alone: go mod tidy downloads what the tests of all dependencies
// require.
package buildkit
