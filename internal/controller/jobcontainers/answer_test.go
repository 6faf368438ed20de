package jobcontainers

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func TestAuditRecord_SaysForWhomWhichImagesWereAdded(t *testing.T) {
	f := newFixture(t)
	f.pod.Labels = map[string]string{runnerpod.LabelPool: "linux", runnerpod.LabelOwner: "acme"}
	a := addition{response: jobcontainer.Response{ID: "r-1", Containers: []jobcontainer.Granted{{Name: "service-1", Image: "docker.io/library/redis@sha256:ab"}}}}
	record := fmt.Sprint(a.auditRecord(f.pod)...)
	for _, part := range []string{"linux", "acme", "r-1", "service-1=docker.io/library/redis@sha256:ab"} {
		require.Contains(t, record, part)
	}
}
