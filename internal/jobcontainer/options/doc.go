// Package options reads `options:` of a job container or service: what Docker's `create` accepts, written as on a command line. Each
// option is accepted, has no effect, or is refused. None is ignored silently.
package options
