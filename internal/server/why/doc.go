// Package why says why a job has no runner yet, or what became of it, in sentences an administrator can act on.
//
// It is one pure function over the inputs of dispatch and the planners themselves; the API, the command line and the web page show its
// answer, and nothing here reads or decides anything.
//
//   - why.go: the evidence, the codes, and the order in which causes are looked for
//   - before.go: causes before a claim: routing, accounts, limits, GitHub's limits, the pool
//   - after.go: causes after it: minting, acknowledging, GitHub's assignment
package why
