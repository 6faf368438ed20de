//go:build unix

package tartcli

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func FuzzList(f *testing.F) {
	f.Add(`[{"Source":"local","Name":"a","Disk":50,"Size":30,"Accessed":"2026-11-22T10:22:49Z","Running":true,"State":"running"}]`)
	f.Add(`[{"Source":"OCI","Name":"ghcr.io/a/b@sha256:0","Size":"12.5","SizeOnDisk":7,"Running":false}]`)
	f.Add(`[{"Name":1}]`)
	f.Add(`null`)
	f.Add(`[{"Name":"a","Size":1e999,"Running":"true","State":7}]`)
	f.Fuzz(func(t *testing.T, text string) {
		vms, err := parseList(text)
		if err != nil {
			require.Nil(t, vms)
			return
		}
		for _, vm := range vms {
			require.NotEmpty(t, vm.Name)
			require.False(t, math.IsNaN(vm.SizeGB) || math.IsInf(vm.SizeGB, 0) || vm.SizeGB < 0)
			require.Contains(t, []State{StateRunning, StateSuspended, StateStopped}, vm.State)
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add("2.28.6\n")
	f.Add("tart 2.30-beta")
	f.Add("SNAPSHOT")
	f.Add("99999999999999999999.1")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseVersion(text)
		if err == nil {
			require.True(t, v.AtLeast(v.Major, v.Minor, v.Patch))
			require.False(t, v.AtLeast(v.Major+1, 0, 0))
			again, err := parseVersion(v.Text)
			require.NoError(t, err)
			require.Equal(t, v, again)
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add(2, `the specified VM "x" does not exist`)
	f.Add(1, "\x00\xff\n\nError: secret-word")
	f.Add(64, strings.Repeat("x", 2000))
	f.Fuzz(func(t *testing.T, code int, text string) {
		require.True(t, slices.Contains(Kinds(), classify(code, text)))
		c := &Client{secrets: []string{"secret-word"}}
		message := c.message(text)
		require.True(t, utf8.ValidString(message))
		require.LessOrEqual(t, len(message), maxMessage+len("…"))
		require.NotContains(t, message, "secret-word")
		require.False(t, strings.ContainsFunc(message, unicode.IsControl))
	})
}
