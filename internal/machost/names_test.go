package machost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// YAML reads off, on, yes and no as booleans, also as a field's name.
func TestParseConfig_HasNoFieldWhoseNameYAMLTakesForAValue(t *testing.T) {
	c, err := ParseConfig([]byte("user: ci\negress: {disabled: true}\nnode: {disabled: true}\n"))
	require.NoError(t, err)
	require.True(t, c.Egress.Off && c.Node.Off)
}
