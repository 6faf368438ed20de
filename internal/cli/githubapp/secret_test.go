package githubapp

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// The chart's Secret is created in a real cluster, and an existing one is kept.
func TestInSecret_InACluster(t *testing.T) {
	env := kit.Cluster(t)
	in, o := gitHub(t, nil)
	namespace := env.Namespace(t)
	store := InSecret{Client: env.Kube, Namespace: namespace, Name: DefaultSecret, Cluster: env.Config.Host}
	o.Store = store
	r := begin(t.Context(), t, o)
	b := newBrowser(t)
	b.submit(b.submit(b.open(r.url)))
	result, err := r.end(t)
	require.NoError(t, err)
	require.Equal(t, "Secret "+namespace+"/bullpen-github of the cluster "+env.Config.Host, result.StoredIn)
	secret, err := env.Kube.CoreV1().Secrets(namespace).Get(t.Context(), DefaultSecret, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, secret.Data, 2)
	require.NotEmpty(t, secret.Data["webhook-secret"])
	_, err = github.New(github.Options{BaseURL: o.API, AppID: result.ID, PrivateKey: secret.Data["private-key.pem"]})
	require.NoError(t, err)

	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, ErrExists)
	require.Len(t, in.RegisteredApps(), 1, "nothing was registered that could not be stored")
	app := github.CreatedApp{PrivateKey: fleet.NewSecret("another"), WebhookSecret: fleet.NewSecret("another")}
	require.Error(t, store.Save(t.Context(), app), "the Secret is another App's")
	app.PrivateKey = fleet.NewSecret(string(secret.Data["private-key.pem"]))
	require.NoError(t, store.Save(t.Context(), app), "an attempt whose answer was lost had stored it")

	o.Store = InSecret{Client: env.Kube, Namespace: "nowhere", Name: DefaultSecret}
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "kubectl create namespace nowhere")
}
