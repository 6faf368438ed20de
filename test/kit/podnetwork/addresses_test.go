package podnetwork

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddresses_AreGivenInTurnAndNeverTwice(t *testing.T) {
	a := newAddresses(t.TempDir(), netip.MustParsePrefix("10.0.0.0/29"))
	require.Equal(t, "10.0.0.1", a.bridge().String())
	take := func(pod string) string {
		address, err := a.take(pod)
		require.NoError(t, err)
		return address.String()
	}
	for i, pod := range []string{"a", "b", "c", "d", "e"} {
		require.Equal(t, netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + i)}).String(), take(pod))
	}
	require.Equal(t, "10.0.0.4", take("c"), "the same again")
	_, err := a.take("f")
	require.ErrorContains(t, err, "every address")
	require.NoError(t, a.giveBack("b"))
	require.NoError(t, a.giveBack("d"))
	require.NoError(t, a.giveBack("nobody"))
	require.Equal(t, "10.0.0.3", take("f"))
	require.NoError(t, a.giveBack("f"))
	require.Equal(t, "10.0.0.5", take("g"), "the one after the last that was given")
}
