package hosts

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// confirmAll reads what an apply prints, and answers what it asks, as a bootstrap over SSH would.
func confirmAll(t *testing.T, output io.Reader, input io.WriteCloser) string {
	t.Helper()
	defer input.Close()
	var all strings.Builder
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		var event machost.Event
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Phase == machost.PhaseConfirm {
			_, err := fmt.Fprintf(input, "confirm %s\n", event.Token)
			require.NoError(t, err)
		}
	}
	require.NoError(t, lines.Err())
	return all.String()
}
