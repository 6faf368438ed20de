package pfrules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Bridges are the interfaces by which machines reach the host: vmnet numbers its bridges from 100. On a host with another one (see Uncovered)
// there are machines that no rule is about.
var Bridges = []string{"bridge100", "bridge101", "bridge102", "bridge103"}

// hostInterfaces are those that a Mac may have addresses on, besides the bridges. A name that no interface has matches nothing.
var hostInterfaces = slices.Concat(numbered("en", 8), []string{"bridge0"}, numbered("utun", 8), numbered("vlan", 4))

// private is all that is not the internet. Of IPv6 only 2000::/3 is allocated for that: the rest of it is unique local (fc00::/7),
// link-local (fe80::/10), multicast, loopback, IPv4 in another form (::ffff:0:0/96, 64:ff9b::/96), or unassigned. Teredo and 6to4 hold IPv4
// addresses, private ones too.
var private = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"::/3", "2001::/32", "2002::/16", "4000::/2", "8000::/1")

// Uncovered returns those of a host's interfaces that vmnet made and no rule is about.
func Uncovered(interfaces []string) []string {
	var result []string
	for _, name := range interfaces {
		number, ours := strings.CutPrefix(name, "bridge")
		if ours && len(number) == 3 && !slices.Contains(Bridges, name) {
			result = append(result, name)
		}
	}
	return result
}

// EgressNetworks are what the rules of machines depend on.
type EgressNetworks struct {
	Machines []netip.Prefix // that vmnet gives to machines
	Allow    []netip.Prefix // that machines may reach although they are private
}

// Egress renders what machines may reach: the internet, and of the host DHCP, DNS and what IPv6 needs of a neighbour. Then what is
// allowed; but neither the host nor another machine, of whatever network they are. The error is a *NetworkError, or says that Machines is empty.
func Egress(networks EgressNetworks) (string, error) {
	machines, err := routable("machines", networks.Machines)
	if err != nil {
		return "", err
	}
	if len(machines) == 0 {
		return "", errors.New("there is no network of machines, and what machines may not reach of each other is unknown")
	}
	allow, err := routable("allow", networks.Allow)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(header("What virtual machines may reach."))
	text.WriteString(table("bullpen_machines", machines))
	if len(allow) > 0 {
		text.WriteString(table("bullpen_allowed", allow))
	}
	text.WriteString(table("bullpen_private", private))
	for _, bridge := range Bridges {
		text.WriteString(fromMachines(bridge, len(allow) > 0))
	}
	return text.String(), nil
}

// fromMachines are the rules of one bridge. The first rule that matches decides; the internet is what none matches.
func fromMachines(bridge string, allow bool) string {
	host := dynamic("", slices.Concat(Bridges, hostInterfaces))
	on := "in quick on " + bridge
	lines := []string{
		"",
		fmt.Sprintf("pass %s inet proto udp from any port 68 to { 255.255.255.255 (%s) } port 67 no state", on, bridge),
		fmt.Sprintf("pass %s proto { tcp udp } from any to (%s) port 53 no state", on, bridge),
		fmt.Sprintf("pass %s inet6 proto { tcp udp } from any to fe80::/10 port 53 no state", on),
		// Router and neighbour solicitation, neighbour advertisement. No advertisement of routers: machines are none.
		fmt.Sprintf("pass %s inet6 proto ipv6-icmp from any to any icmp6-type { 133 135 136 } no state", on),
		// Before what is allowed: a network that the host itself is in does not open the host.
		fmt.Sprintf("block drop %s from any to %s", on, host),
		fmt.Sprintf("block drop %s from any to <bullpen_machines>", on),
	}
	if allow {
		lines = append(lines, fmt.Sprintf("pass %s from any to <bullpen_allowed> no state", on))
	}
	lines = append(lines,
		fmt.Sprintf("block drop %s from any to <bullpen_private>", on),
		fmt.Sprintf("block drop %s inet6 from any to %s", on, dynamic(":network", hostInterfaces)),
		// Answers to the host's own connections pass, although a machine may not open any to the host.
		fmt.Sprintf("pass out quick on %s from (%s) to any flags any keep state", bridge, bridge),
		"")
	return strings.Join(lines, "\n")
}

func header(purpose string) string {
	return "# " + purpose + " Written by `bullpen host apply`, which overwrites changes.\n"
}

func dynamic(modifier string, interfaces []string) string {
	names := make([]string, len(interfaces))
	for i, name := range interfaces {
		names[i] = "(" + name + modifier + ")"
	}
	return "{ " + strings.Join(names, " ") + " }"
}

func numbered(name string, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", name, i)
	}
	return names
}
