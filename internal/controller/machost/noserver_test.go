package machost_test

import (
	"context"

	"github.com/bullpen-ci/bullpen/internal/dispatchapi"
	"github.com/bullpen-ci/bullpen/internal/lifecycle"
)

// noServer is asked for nothing: there are no pools.
type noServer struct{}

func (noServer) Ask(_ context.Context, runners []lifecycle.RunnerRef) []lifecycle.Answer {
	return make([]lifecycle.Answer, len(runners))
}
func (noServer) ReportStopped(context.Context, dispatchapi.PodStopped) error { return nil }
func (noServer) Signals(context.Context) (dispatchapi.Signals, error) {
	return dispatchapi.Signals{}, nil
}
func (noServer) Demand(context.Context, []dispatchapi.DemandTarget) ([]dispatchapi.TargetDemand, error) {
	return nil, nil
}
