// Package pfrules renders the rules of the two pf anchors of a Mac host, as text, from networks: what machines may reach (Egress), and
// which clients may open SSH connections to the host (Guard). If any part cannot be rendered, nothing is.
//
// Three facts of macOS's pf shape the rules. It has no groups of interfaces, so vmnet's bridges are named one by one. `(self)` never
// matches there, and `self` is resolved once, when the rules are loaded: the host's addresses are those of each interface by name, `(en0)`,
// which follows its changes. And temporary IPv6 addresses are not part of `(en0)`, so that there the interface's whole network is blocked.
//
// The rules pass without state: they apply to open connections as to new ones, so loading them ends no session. Only connections of the
// host to a machine have state, which lets the responses back in.
//
// It has no input or output. Begin with Egress in egress.go.
package pfrules
