// Package workflow turns GitHub Actions workflow files into jobs, without a clock, without I/O and without
// goroutines.
//
// It has four parts, in the order in which a job meets them:
//
//   - [Load] parses and checks a file. Everything the stand-in cannot do faithfully (actions of other
//     repositories, reusable workflows, …) is refused here, by file, line and feature, so that no workflow
//     ever half-runs.
//   - [Run] schedules: it expands matrices, evaluates conditions, hands out each job exactly once, and
//     concludes the jobs that never reach a runner.
//   - [JobMessage] writes a ready job in the runner protocol's own encoding; [ParseJobMessage] reads it back.
//     The development runner shares that decode side.
//   - [Scope] evaluates ${{ }} expressions, for the scheduler here and for the steps in the runner.
//
// Files are checked by rhysd/actionlint, and its expression parser supplies the syntax trees. The evaluator
// over those trees is this package's own: the one in nektos/act brings in a git client with SSH and OpenPGP
// (over a hundred packages), reads files for hashFiles, walks Go maps in random order and panics on some
// malformed format strings, none of which a pure, fuzzed scheduler may do.
//
// `container` and `services` are read by a shape of the schema (shape.go, container.go), with GitHub's texts for what does not fit, and
// sent as they are: [Scope.EvalContainer] evaluates them in the runner, against the same shape.
//
// Begin with load.go, then run.go.
package workflow
