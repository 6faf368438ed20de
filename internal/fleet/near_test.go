package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	pools := []LabelledPool{{Name: "gpu", Labels: []string{"gpu", "cuda"}}, {Name: "linux", Labels: []string{"bullpen", "linux"}}, {Name: "macs", Labels: []string{"macos-15"}}}
	for name, c := range map[string]struct {
		labels []string
		want   string
	}{
		"a label is missing":        {[]string{"linux", "x64"}, "Nearest: pool linux lacks x64."},
		"one letter is missing":     {[]string{"Bulpen"}, "Nearest: pool linux has bullpen, not Bulpen."},
		"two letters are exchanged": {[]string{"bulplen"}, "Nearest: pool linux has bullpen, not bulplen."},
		"misspelt before missing":   {[]string{"linux", "bulpen"}, "Nearest: pool linux has bullpen, not bulpen."},
		"missing and misspelt":      {[]string{"linux", "bulpen", "x64"}, "Nearest: pool linux has bullpen, not bulpen and lacks x64."},
		"several":                   {[]string{"cuda", "linux", "macos-14"}, "Nearest: pool gpu lacks linux, macos-14; pool linux lacks cuda, macos-14; pool macs has macos-15, not macos-14 and lacks cuda, linux."},
		"too short":                 {[]string{"x"}, ""},
		"nothing alike":             {[]string{"windows"}, ""},
		"no labels":                 {nil, ""},
		"too many letters differ":   {[]string{"pullman"}, ""},
		"an empty label":            {[]string{""}, ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, NearestText(Nearest(pools, c.labels))) })
	}
}

// The remedy names a pool that stays.
func TestUnservedRemedy_PassesOverAPoolThatIsBeingDeleted(t *testing.T) {
	pools := []LabelledPool{{Name: "old", Labels: []string{"gpu", "cuda"}, Terminating: true}, {Name: "new", Labels: []string{"gpu"}}}
	near := Nearest(pools, []string{"gpu", "cuda"})
	require.Equal(t, "Nearest: pool old is being deleted; pool new lacks cuda.", NearestText(near))
	require.Equal(t, "Write `runs-on: gpu` in the workflow, or add cuda to spec.labels of pool new.", UnservedRemedy(pools, []string{"gpu", "cuda"}, near))
}
