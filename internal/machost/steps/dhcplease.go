package steps

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// dhcpLease shortens the time for which vmnet lends an address: it has about 253, and lends each for a day. Other settings of the
// file stay.
type dhcpLease struct{ seconds int }

func newDHCPLease(p machost.Payload, _ Facts) (machost.Step, error) {
	return dhcpLease{p.Config.DHCPLeaseSeconds}, nil
}

const (
	sharingPlist = "/Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist"
	leaseKey     = "DHCPLeaseTimeSecs"
)

var leaseValue = regexp.MustCompile(`(?m)^\s*"?` + leaseKey + `"?\s*=\s*"?([0-9]+)"?;`)

// Name is "dhcp-lease".
func (dhcpLease) Name() string { return "dhcp-lease" }

// Check reads the dictionary, which defaults prints as `{ DHCPLeaseTimeSecs = 600; }`; there may be none.
func (s dhcpLease) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	said, err := h.Run(ctx, machost.Command{Path: defaults, Args: []string{"read", sharingPlist, "bootpd"}})
	if err != nil {
		return machost.Diff{}, err
	}
	have := "the default, a day"
	if found := leaseValue.FindSubmatch(said.Stdout); said.ExitCode == 0 && found != nil {
		have = string(found[1])
	}
	if have == strconv.Itoa(s.seconds) {
		return machost.Diff{}, nil
	}
	return machost.Diff{Changes: []string{fmt.Sprintf("set bootpd %s to %d: it is %s", leaseKey, s.seconds, have)}}, nil
}

// Apply adds the one key.
func (s dhcpLease) Apply(ctx context.Context, h machost.Host) error {
	_, err := run(ctx, h, defaults, "write", sharingPlist, "bootpd", "-dict-add", leaseKey, "-int", strconv.Itoa(s.seconds))
	if err != nil {
		return &machost.StepError{File: sharingPlist, Err: err,
			Remedy: "Check the file with `plutil -p`; if it is damaged, move it, and apply again."}
	}
	return nil
}

// Verify has nothing to prove here: bootpd reads the file when vmnet starts it, and the node's condition DHCPLeases tells from then on.
func (dhcpLease) Verify(context.Context, machost.Host) error { return nil }
