package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// noSleep keeps the Mac awake, and has it start again after a power failure.
type noSleep struct{}

func newNoSleep(machost.Payload, Facts) (machost.Step, error) { return noSleep{}, nil }

const pmset = "/usr/bin/pmset"

// powerSettings are pmset's, in the order in which they are set. Not every Mac has the last two: a portable one starts by its lid.
var powerSettings = []struct {
	name, value string
	optional    bool
}{
	{"sleep", "0", false}, {"disksleep", "0", false}, {"displaysleep", "0", false}, {"womp", "1", true}, {"autorestart", "1", true},
}

// Name is "no-sleep".
func (noSleep) Name() string { return "no-sleep" }

// Check reads what is set for each source of power.
func (noSleep) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	said, err := run(ctx, h, pmset, "-g", "custom")
	if err != nil {
		return diff, err
	}
	values := parsePower(said)
	for _, want := range powerSettings {
		have := values[want.name]
		if len(have) == 0 && want.optional {
			continue
		}
		if len(have) != 1 || !have[want.value] {
			diff.Changes = append(diff.Changes, fmt.Sprintf("set %s to %s (pmset)", want.name, want.value))
		}
	}
	return diff, nil
}

// parsePower collects the values that each setting has, over all sources of power: lines such as " sleep   1 (sleep prevented by caffeinate)".
func parsePower(text string) map[string]map[string]bool {
	values := map[string]map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(line, " ") {
			continue
		}
		if values[fields[0]] == nil {
			values[fields[0]] = map[string]bool{}
		}
		values[fields[0]][fields[1]] = true
	}
	return values
}

// Apply sets them all at once.
func (noSleep) Apply(ctx context.Context, h machost.Host) error {
	args := []string{"-a"}
	for _, want := range powerSettings {
		args = append(args, want.name, want.value)
	}
	_, err := run(ctx, h, pmset, args...)
	return err
}

// Verify asks what is in force now, which a profile of a device management may have overruled.
func (noSleep) Verify(ctx context.Context, h machost.Host) error {
	said, err := run(ctx, h, pmset, "-g", "live")
	if err != nil {
		return err
	}
	if have := parsePower(said)["sleep"]; len(have) != 1 || !have["0"] {
		return &machost.StepError{Err: fmt.Errorf("sleep is set to 0, but is not in force: %s", firstLine(machost.Result{Stdout: []byte(said)})),
			Remedy: "Check for a configuration profile that manages energy settings (System Settings, Device Management)."}
	}
	return nil
}
