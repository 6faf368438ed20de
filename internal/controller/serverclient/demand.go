package serverclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

// Demand asks which jobs each target's runners are for, and answers in the order asked. After any error nothing is known of any
// target, and no number may fall for it (POOL-8). An error is a *StatusError when the server refused, ErrBadAnswer when what it
// said cannot be used.
func (c *Client) Demand(ctx context.Context, targets []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error) {
	body, err := json.Marshal(runnerapi.DemandRequest{Targets: targets})
	if err != nil {
		return nil, fmt.Errorf("encoding the request to %s: %w", runnerapi.PathDemand, err)
	}
	content, err := c.exchange(ctx, http.MethodPost, runnerapi.PathDemand, body)
	if err != nil {
		return nil, fmt.Errorf("reading demand: %w", err)
	}
	answers, err := decodeDemand(targets, content)
	if err != nil {
		return nil, fmt.Errorf("reading demand: %w: %w", ErrBadAnswer, err)
	}
	return answers, nil
}

// decodeDemand takes nothing for granted: a target that is missing, or whose lists are, would be read as no demand.
func decodeDemand(targets []runnerapi.DemandTarget, content []byte) ([]runnerapi.TargetDemand, error) {
	var response runnerapi.DemandResponse
	if err := json.Unmarshal(content, &response); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	byKey := make(map[string]runnerapi.TargetDemand, len(response.Targets))
	for _, answer := range response.Targets {
		if _, twice := byKey[answer.Key]; twice {
			return nil, fmt.Errorf("target %q occurs twice", answer.Key)
		}
		if answer.Queued == nil || answer.Running == nil {
			return nil, fmt.Errorf("target %q has no list of jobs", answer.Key)
		}
		for _, jobs := range [][]runnerapi.DemandJob{answer.Queued, answer.Running} {
			for _, job := range jobs {
				if job.ID <= 0 || job.Repository == "" {
					return nil, fmt.Errorf("target %q has an invalid job", answer.Key)
				}
			}
		}
		byKey[answer.Key] = answer
	}
	answers := make([]runnerapi.TargetDemand, len(targets))
	for i, target := range targets {
		answer, answered := byKey[target.Key]
		if !answered {
			return nil, fmt.Errorf("target %q is missing from the response", target.Key)
		}
		answers[i] = answer
	}
	return answers, nil
}
