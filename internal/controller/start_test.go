package controller_test

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func TestRun_AnAPIServerThatDoesNotAnswerIsNamed(t *testing.T) {
	err := controller.Run(t.Context(), controller.Options{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "ns", Server: &serverclient.Client{},
		Pod:      runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"},
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	require.ErrorContains(t, err, "connecting to the API server http://127.0.0.1:1")
}
