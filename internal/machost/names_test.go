package machost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// YAML takes off, on, yes and no for truth values, also where a field's name stands.
func TestParseConfig_HasNoFieldWhoseNameYAMLTakesForAValue(t *testing.T) {
	c, err := ParseConfig([]byte("user: ci\negress: {disabled: true}\nnode: {disabled: true}\n"))
	require.NoError(t, err)
	require.True(t, c.Egress.Off && c.Node.Off)
}
