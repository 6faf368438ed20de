package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func TestQuantities(t *testing.T) {
	for text, want := range map[string]int64{"4": 4000, "0.5": 500, "500m": 500, "0": 0, "1.25": 1250, "2.001": 2001} {
		got, err := fleet.ParseCPU(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]int64{"512Mi": 512, "64Gi": 65536, "1Ti": 1 << 20, "0": 0} {
		got, err := fleet.ParseMemory(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-1", "1.", "1.2345", "4 ", "4k", "m", "+4", "1e3", "NaN", "1.-5", "99999999999999999999"} {
		_, err := fleet.ParseCPU(text)
		require.ErrorContains(t, err, "invalid number of CPUs", text)
	}
	for _, text := range []string{"", "64", "64GB", "-1Gi", "Gi", "1.5Gi", "99999999999Ti"} {
		_, err := fleet.ParseMemory(text)
		require.ErrorContains(t, err, "invalid amount of memory", text)
	}
}

func TestParseLimits(t *testing.T) {
	was := fleet.Limits{Jobs: 1, MilliCPU: 2, MemoryMB: 3, JobsPerRepository: 4}
	got, err := fleet.ParseLimits("jobs=40, cpu=32,memory=64Gi", was)
	require.NoError(t, err)
	require.Equal(t, fleet.Limits{Jobs: 40, MilliCPU: 32000, MemoryMB: 65536, JobsPerRepository: 4}, got)
	for text, says := range map[string]string{
		"": "unknown limit", "jobs": "invalid number of jobs", "jobs=1,jobs=2": "given twice", "jobs=-1": "invalid number of jobs",
		"cpu=x": "invalid number of CPUs", "memory=1": "invalid amount", "disk=1": "unknown limit",
	} {
		_, err := fleet.ParseLimits(text, was)
		require.ErrorContains(t, err, says, text)
	}
}

func FuzzQuantities(f *testing.F) {
	for _, seed := range []string{"4", "0.5", "500m", "64Gi", "1Ti", "jobs=1,cpu=2", "-1", "1.0000"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := fleet.ParseCPU(text); err == nil {
			again, err := fleet.ParseCPU(fleet.FormatCPU(n))
			require.NoError(t, err)
			require.Equal(t, n, again)
			require.GreaterOrEqual(t, n, int64(0))
		}
		if n, err := fleet.ParseMemory(text); err == nil {
			again, err := fleet.ParseMemory(fleet.FormatMemory(n))
			require.NoError(t, err)
			require.Equal(t, n, again)
			require.GreaterOrEqual(t, n, int64(0))
		}
		if l, err := fleet.ParseLimits(text, fleet.Limits{}); err == nil {
			require.True(t, l.Jobs >= 0 && l.MilliCPU >= 0 && l.MemoryMB >= 0 && l.JobsPerRepository >= 0)
		}
	})
}
