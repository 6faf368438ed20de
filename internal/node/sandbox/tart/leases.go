//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// errNoLeases reports that this machine has no DHCP server of macOS.
var errNoLeases = errors.New("this machine has no DHCP server of macOS")

// defaultLease is what macOS lends an address for when nothing is configured, in seconds: a day.
const defaultLease = 24 * 60 * 60

// configuredLease reads for how long the DHCP server of vmnet lends addresses.
func configuredLease(ctx context.Context) (int, error) {
	if runtime.GOOS != "darwin" {
		return 0, errNoLeases
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/defaults", "read",
		"/Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default", "bootpd")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) { // there is no such key
		return defaultLease, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the configuration of DHCP: %w", err)
	}
	return parseLease(string(out))
}

// parseLease finds the lease's time in the property list as `defaults` prints it.
func parseLease(text string) (int, error) {
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, "=")
		if !found || strings.Trim(strings.TrimSpace(name), `"`) != "DHCPLeaseTimeSecs" {
			continue
		}
		seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `";`))
		if err != nil || seconds <= 0 {
			return 0, fmt.Errorf("the configuration of DHCP has a lease time of %q", clip(strings.TrimSpace(value), 40))
		}
		return seconds, nil
	}
	return defaultLease, nil
}
