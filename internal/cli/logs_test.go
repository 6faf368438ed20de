package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Users with the right to kept lines alone get them: that they may not read logs of pods is an error of its own.
func TestLiveLog_RefusalIsNoFailure(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		refusal   *apierrors.StatusError
		forbidden bool
	}{
		"no such pod": {refusal: apierrors.NewNotFound(pods, "linux-1")},
		"no right":    {refusal: apierrors.NewForbidden(pods, "linux-1", nil), forbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(int(c.refusal.ErrStatus.Code))
				_ = json.NewEncoder(w).Encode(c.refusal.ErrStatus)
			}))
			defer api.Close()
			var out bytes.Buffer
			there, err := LiveLog(t.Context(), &rest.Config{Host: api.URL}, LogQuery{Namespace: "runners", Pod: "linux-1"}, &out)
			require.False(t, there)
			require.Empty(t, out.String())
			if !c.forbidden {
				require.NoError(t, err)
				return
			}
			var refused *ForbiddenLogError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "not allowed")
		})
	}
}
