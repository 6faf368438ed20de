package controlplane

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPorts_PersistUnlessTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports.json")
	first, err := choosePorts(path)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range first.all() {
		require.False(t, seen[*port], "chosen twice")
		seen[*port] = true
	}
	again, err := choosePorts(path)
	require.NoError(t, err)
	require.Equal(t, first, again)

	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(first.APIServer)))
	require.NoError(t, err)
	defer taken.Close()
	third, err := choosePorts(path)
	require.NoError(t, err)
	require.NotEqual(t, first.APIServer, third.APIServer)
	third.APIServer = first.APIServer
	require.Equal(t, first, third, "the others stay")

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = choosePorts(path)
	require.ErrorContains(t, err, "remove that file")
}
