//go:build unix

package tartcli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// State is that of a VM, as far as Tart knows: it may say stopped of one that runs (tart#967).
type State string

// The states.
const (
	StateRunning   State = "running"
	StateSuspended State = "suspended"
	StateStopped   State = "stopped"
)

// VM is an element of what List returns: a local VM, or an image in the cache. An image is there twice, by its tag and by
// its digest.
type VM struct {
	Name string
	// Image indicates that it is an image of a registry, and Name its reference.
	Image bool
	// SizeGB is how much of the host's disk it takes.
	SizeGB float64
	State  State
}

// number is one that Tart writes as a number in one place and as a string in another. Any other value is 0.
type number float64

// UnmarshalJSON never fails: a size that cannot be read is no reason to not see the VM.
func (n *number) UnmarshalJSON(data []byte) error {
	text := strings.TrimSpace(strings.Trim(string(data), `"`))
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
		f = 0
	}
	*n = number(f)
	return nil
}

// lenient is a text; anything else is an empty one.
type lenient string

// UnmarshalJSON never fails.
func (l *lenient) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*l = lenient(text)
	}
	return nil
}

// truth is a boolean; anything else is false.
type truth bool

// UnmarshalJSON never fails.
func (b *truth) UnmarshalJSON(data []byte) error {
	*b = truth(string(data) == "true" || string(data) == `"true"`)
	return nil
}

// stateOf reconciles the two fields that say the same: older releases have only the first.
func stateOf(running truth, state lenient) State {
	switch s := State(strings.ToLower(string(state))); {
	case bool(running) || s == StateRunning:
		return StateRunning
	case s == StateSuspended:
		return s
	default:
		return StateStopped
	}
}

// parseList reads `list --format json`.
func parseList(text string) ([]VM, error) {
	var rows []struct {
		Source, Name, State lenient
		Size                number
		Running             truth
	}
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return nil, fmt.Errorf("reading the list of VMs: %w", err)
	}
	if rows == nil { // "null" is no list
		return nil, errors.New("reading the list of VMs: there is none")
	}
	vms := make([]VM, 0, len(rows))
	for i, r := range rows {
		if r.Name == "" {
			return nil, fmt.Errorf("reading the list of VMs: element %d has no name", i)
		}
		vm := VM{
			Name: string(r.Name), Image: !strings.EqualFold(string(r.Source), "local"), SizeGB: float64(r.Size), State: stateOf(r.Running, r.State),
		}
		if r.Source == "" {
			vm.Image = strings.Contains(vm.Name, "/")
		}
		vms = append(vms, vm)
	}
	return vms, nil
}

// Version is a release of Tart.
type Version struct {
	Major, Minor, Patch int
	// Text is what Tart calls itself.
	Text string
}

// AtLeast reports whether this release is that one, or a newer one.
func (v Version) AtLeast(major, minor, patch int) bool {
	switch {
	case v.Major != major:
		return v.Major > major
	case v.Minor != minor:
		return v.Minor > minor
	default:
		return v.Patch >= patch
	}
}

var versionNumbers = regexp.MustCompile(`(?:^|[^0-9.])(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?`)

// parseVersion finds the first number with dots in what --version prints.
func parseVersion(text string) (Version, error) {
	found := versionNumbers.FindStringSubmatch(text)
	if found == nil {
		return Version{}, errors.New("reading the version: there is no number with a dot")
	}
	v := Version{Text: strings.Trim(found[0], " \t\r\n")}
	v.Major, _ = strconv.Atoi(found[1]) // digits that fit
	v.Minor, _ = strconv.Atoi(found[2])
	v.Patch, _ = strconv.Atoi(found[3]) // may be empty
	v.Text = fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	return v, nil
}
