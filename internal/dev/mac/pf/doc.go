// Package pf is a model of macOS's packet filter: the rules of pf.conf as pfctl reads them, keeps them, prints them in their normal form, and
// what they mean for a packet.
//
//   - lex.go, parse.go, rules.go, hosts.go: text to rules, with pfctl's refusals
//   - load.go: a Filter, the kernel's part: rule sets by anchor, tables, enabled or not; transactions that fail as a whole
//   - print.go: rules in normal form
//   - evaluate.go: which rule decides for a packet
//
// It knows the grammar as far as people write it for hosts, and refuses the rest. Begin with Filter.
package pf
