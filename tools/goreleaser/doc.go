// Package goreleaser holds .goreleaser.yaml to the schema of the GoReleaser that .github/workflows/release.yaml runs. It is a Go module of its
// own, so that GoReleaser's dependencies reach no other go.mod.
package goreleaser
