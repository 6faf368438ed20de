package runnerowner

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Users filter Events by reason: one about the end of a problem must not have the problem's name.
func TestTurns_AnEndNeverHasTheNameOfAProblem(t *testing.T) {
	problems := map[string]bool{}
	for _, turn := range turns {
		problems[turn.begins] = true
	}
	for kind, turn := range turns {
		require.False(t, problems[turn.ends], kind)
		if turn.bad == metav1.ConditionTrue {
			require.NotEqual(t, kind, turn.ends)
		}
	}
}
