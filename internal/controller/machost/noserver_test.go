package machost_test

import (
	"context"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// noServer is asked for nothing: there are no pools.
type noServer struct{}

func (noServer) Ask(_ context.Context, runners []lifecycle.RunnerRef) []lifecycle.Answer {
	return make([]lifecycle.Answer, len(runners))
}
func (noServer) ReportStopped(context.Context, runnerapi.PodStopped) error { return nil }
func (noServer) Signals(context.Context) (runnerapi.Signals, error) {
	return runnerapi.Signals{}, nil
}
func (noServer) Demand(context.Context, []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error) {
	return nil, nil
}
