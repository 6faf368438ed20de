package pf

import "net/netip"

// Kind of a rule: in which list of a rule set it stands, and whether it calls an anchor.
type Kind string

// Kinds.
const (
	KindScrub          Kind = "scrub"
	KindScrubAnchor    Kind = "scrub-anchor"
	KindNAT            Kind = "nat"
	KindNoNAT          Kind = "no nat"
	KindNATAnchor      Kind = "nat-anchor"
	KindRDR            Kind = "rdr"
	KindNoRDR          Kind = "no rdr"
	KindRDRAnchor      Kind = "rdr-anchor"
	KindBinat          Kind = "binat"
	KindBinatAnchor    Kind = "binat-anchor"
	KindDummynet       Kind = "dummynet"
	KindDummynetAnchor Kind = "dummynet-anchor"
	KindPass           Kind = "pass"
	KindBlock          Kind = "block"
	KindAnchor         Kind = "anchor"
)

// Rule is one rule, after lists have been expanded.
type Rule struct {
	Kind      Kind     `json:"kind"`
	Return    string   `json:"return,omitempty"` // of block: drop, return, return-rst, return-icmp
	Direction string   `json:"direction,omitempty"`
	Log       bool     `json:"log,omitempty"`
	Quick     bool     `json:"quick,omitempty"`
	Interface string   `json:"interface,omitempty"`
	NotOn     bool     `json:"notOn,omitempty"`
	Family    string   `json:"family,omitempty"` // inet, inet6
	Proto     string   `json:"proto,omitempty"`
	From      Host     `json:"from"`
	To        Host     `json:"to"`
	FromPort  Port     `json:"fromPort,omitzero"`
	ToPort    Port     `json:"toPort,omitzero"`
	Flags     string   `json:"flags,omitempty"` // "S/SA", "any"
	ICMPType  string   `json:"icmpType,omitempty"`
	State     string   `json:"state,omitempty"` // keep, modulate, synproxy, no
	Options   []string `json:"options,omitempty"`
	Anchor    string   `json:"anchor,omitempty"` // the path that is called
	Target    *Host    `json:"target,omitempty"` // of nat and rdr
	TargetTo  Port     `json:"targetPort,omitzero"`
	PassToo   bool     `json:"passToo,omitempty"` // of "nat pass", "rdr pass"
}

// Host is an address, or what stands for some.
type Host struct {
	Not     bool         `json:"not,omitempty"`
	Prefix  netip.Prefix `json:"prefix,omitzero"`
	Last    netip.Addr   `json:"last,omitzero"` // of a range from Prefix's address on
	Table   string       `json:"table,omitempty"`
	Dynamic string       `json:"dynamic,omitempty"` // (en0), (self), en0:network between parentheses
	NoRoute bool         `json:"noRoute,omitempty"`
}

// any reports whether it stands for every address.
func (h Host) any() bool {
	return !h.Prefix.IsValid() && h.Table == "" && h.Dynamic == "" && !h.NoRoute
}

func (h Host) family() string {
	switch {
	case !h.Prefix.IsValid():
		return ""
	case h.Prefix.Addr().Is4():
		return "inet"
	}
	return "inet6"
}

// Port is a comparison with a port.
type Port struct {
	Op   string `json:"op,omitempty"` // = != < <= > >= : <> ><
	A, B uint16
}

// Ruleset is that of one anchor, or the main one.
type Ruleset struct {
	Rules  []Rule           `json:"rules"`
	Tables map[string]Table `json:"tables,omitempty"`
}

// Table of addresses.
type Table struct {
	Persist   bool     `json:"persist,omitempty"`
	Const     bool     `json:"const,omitempty"`
	Addresses []string `json:"addresses"` // prefixes, with ! before those that are left out
}

// order is where a rule may stand: options, normalization, queueing, translation, filtering.
func (k Kind) order() int {
	switch k {
	case KindScrub, KindScrubAnchor:
		return 2
	case KindNAT, KindNoNAT, KindNATAnchor, KindRDR, KindNoRDR, KindRDRAnchor, KindBinat, KindBinatAnchor:
		return 4
	case KindDummynet, KindDummynetAnchor:
		return 5
	}
	return 6
}

// calls reports whether a rule of this kind calls an anchor.
func (k Kind) calls() bool {
	switch k {
	case KindScrubAnchor, KindNATAnchor, KindRDRAnchor, KindBinatAnchor, KindDummynetAnchor, KindAnchor:
		return true
	}
	return false
}

// Translates reports whether it is among those that `pfctl -s nat` shows.
func (k Kind) Translates() bool { return k.order() == 4 }
