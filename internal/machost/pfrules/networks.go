package pfrules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// NetworkError says which network of which list cannot be used. Nothing was rendered.
type NetworkError struct {
	List    string // "allow"
	Network netip.Prefix
	Problem string
}

// Error is the sentence for a person.
func (e *NetworkError) Error() string {
	if !e.Network.IsValid() {
		return fmt.Sprintf("a network of %s %s", e.List, e.Problem)
	}
	return fmt.Sprintf("network %s of %s %s", e.Network, e.List, e.Problem)
}

// unroutable is what no host can reach through another: a network that holds some of it says something else than its author meant.
var unroutable = prefixes("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
	"::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8")

// ordered returns the networks in one order, each once. The error is a *NetworkError.
func ordered(list string, networks []netip.Prefix) ([]netip.Prefix, error) {
	for _, network := range networks {
		problem := ""
		switch {
		case !network.IsValid():
			problem = "is not a network: write it as 10.1.0.0/16 or fd00:1::/32"
		case network.Addr().Is4In6():
			problem = "is IPv4 in the form of IPv6: write it as IPv4"
		case network != network.Masked():
			problem = fmt.Sprintf("has bits beyond its length: is %s meant?", network.Masked())
		}
		if problem != "" {
			return nil, &NetworkError{List: list, Network: network, Problem: problem}
		}
	}
	result := slices.Clone(networks)
	slices.SortFunc(result, netip.Prefix.Compare)
	return slices.Compact(result), nil
}

// routable is ordered, without everything and without what cannot be reached.
func routable(list string, networks []netip.Prefix) ([]netip.Prefix, error) {
	result, err := ordered(list, networks)
	if err != nil {
		return nil, err
	}
	for _, network := range result {
		if network.Bits() == 0 {
			return nil, &NetworkError{List: list, Network: network, Problem: "is every address: turn the filter off, if that is meant"}
		}
		for _, hole := range unroutable {
			if network.Overlaps(hole) {
				return nil, &NetworkError{List: list, Network: network, Problem: fmt.Sprintf("holds addresses of %s, which cannot be reached through a host", hole)}
			}
		}
	}
	return result, nil
}

func table(name string, networks []netip.Prefix) string {
	texts := make([]string, len(networks))
	for i, network := range networks {
		texts[i] = network.String()
	}
	return fmt.Sprintf("table <%s> const { %s }\n", name, strings.Join(texts, " "))
}

func prefixes(texts ...string) []netip.Prefix {
	result := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		result[i] = netip.MustParsePrefix(text)
	}
	return result
}
