package pfrules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Guard renders who may open connections to the host's SSH: the networks, and the host itself. Machines never may, whatever the networks
// hold; theirs to port 22 of the internet are none of the guard's business. The error is a *NetworkError, or says that there is no network.
func Guard(from []netip.Prefix) (string, error) {
	from, err := ordered("allowFrom", from)
	if err != nil {
		return "", err
	}
	if len(from) == 0 {
		return "", errors.New("ssh.allowFrom is empty: it would deny all SSH connections")
	}
	own := slices.Concat(Bridges, hostInterfaces)
	bridges := "{ " + strings.Join(Bridges, " ") + " }"
	// The last rule that matches decides. None is quick: rules of others, and the filter of machines, are evaluated too.
	return header("Who may open SSH connections to this host.") +
		table("bullpen_ssh", from) + strings.Join([]string{
		"",
		"block drop in proto tcp from any to any port 22",
		"pass in on lo0 proto tcp from any to any port 22 flags any no state",
		"pass in proto tcp from <bullpen_ssh> to any port 22 flags any no state",
		fmt.Sprintf("pass in on %s proto tcp from any to any port 22 flags any no state", bridges),
		fmt.Sprintf("block drop in on %s proto tcp from any to %s port 22", bridges, dynamic("", own)),
		// Link-local and temporary addresses, which the line above does not see.
		fmt.Sprintf("block drop in on %s inet6 proto tcp from any to fe80::/10 port 22", bridges),
		fmt.Sprintf("block drop in on %s inet6 proto tcp from any to %s port 22", bridges, dynamic(":network", own)),
		"",
	}, "\n"), nil
}

// NoGuard is the content of the guard's file without a guard: every client may connect.
func NoGuard() string {
	return header("Who may open SSH connections to this host: any client.")
}
