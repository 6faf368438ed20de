// Package pfrules renders the rules of the two pf anchors of a Mac host, as text, from networks: what machines may reach
// (Egress), and who may open SSH connections to the host (Guard). What cannot be rendered as a whole is not rendered at all.
//
// Three facts of macOS's pf shape the rules. It has no groups of interfaces, so that vmnet's bridges are named one by one. `(self)`
// never matches there, and `self` is resolved once, when the rules are loaded: the host's addresses are asked of each interface by name,
// `(en0)`, which follows what the interface has. And temporary IPv6 addresses are left out of `(en0)`, so that there the interface's whole
// network is blocked.
//
// The rules pass without state: they say the same of a connection that is open already as of a new one, so that loading them ends no
// session. Only connections of the host to a machine have state, by which the answers come back.
//
// It does no input and no output. Begin with Egress in egress.go.
package pfrules
