// Package arcmigration converts manifests of actions-runner-controller to Bullpen's kinds, and says what it could not convert.
//
// Nothing is dropped in silence, by construction: an object is read into a tree whose leaves remember whether they were
// converted or spoken about (value.go), and whatever is left when the conversion is over is reported, also if this version
// knows no such field. What is copied as it is, such as a pod's volumes, is copied along the schemas of the
// CustomResourceDefinitions that the chart installs (schema.go), so that nothing is written which the API server would
// silently prune.
//
// The values of a chart are read where they are (release.go, installers.go). What pods of the peer's have for Docker and for container hooks is
// taken out before the rest is copied, together with its volumes and mounts (daemon.go, hooks.go). At the end the results are compared with each
// other (conflicts.go).
//
// Everything is pure: bytes in, objects and a report out. Begin with convert.go.
package arcmigration
