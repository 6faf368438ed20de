package chart

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// Helm 3 and Helm 4 render the chart to the same objects, and refuse the same values.
func TestHelm3_RendersWhatHelm4Renders(t *testing.T) {
	examples, err := os.ReadFile("../../examples/values.yaml")
	require.NoError(t, err)
	for name, text := range map[string]string{"the least": "github: {appID: 1}", "the example": string(examples), "everything": everything} {
		for _, release := range []helmchart.Release{
			{}, {Upgrade: true}, {Template: true}, {Name: "ci", Namespace: "team-a"}, {APIVersions: []string{"monitoring.coreos.com/v1"}},
		} {
			release.Values = values(t, text)
			want, failed := helmchart.Render(release)
			got, err := helmchart.RenderHelm3(release)
			if failed != nil { // such as for kinds that the cluster lacks
				require.Error(t, err, name)
				continue
			}
			require.NoError(t, err, name)
			objects, err := helmchart.Objects(got)
			require.NoError(t, err)
			wanted, err := helmchart.Objects(want)
			require.NoError(t, err)
			require.NotEmpty(t, wanted)
			require.Equal(t, wanted, objects, name)
		}
	}
	for _, text := range []string{"github: {appID: 1}\nreplicas: 3", "github: {appID: 1, secret: {webhookSecret: x}}", "server: {replicas: two}"} {
		_, err := helmchart.RenderHelm3(helmchart.Release{Values: values(t, text)})
		require.Error(t, err, text)
	}
}
