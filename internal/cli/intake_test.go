package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// A pool that already is in the requested state is reported so, with the change that set it.
func TestPoolIntake_Already(t *testing.T) {
	for want, p := range map[string]cli.PoolIntake{
		"": {Name: "linux", Intake: v1alpha1.IntakePaused, Changed: true},
		"pool linux is already paused (by ada since 2026-03-01 12:00 UTC: disks)": {Name: "linux", Intake: v1alpha1.IntakePaused, Note: "by ada since 2026-03-01 12:00 UTC: disks"},
		"pool mac is already drained":        {Name: "mac", Intake: v1alpha1.IntakeDrained},
		"pool big is already accepting jobs": {Name: "big", Intake: v1alpha1.IntakeOpen, Note: "left over"},
	} {
		require.Equal(t, want, p.Already())
	}
}
