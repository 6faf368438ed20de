package http

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Bounds of a target that no object of the API goes beyond.
const (
	mostTargetLabels       = 100
	mostTargetRepositories = 100
)

// demand answers whole or not at all, as signals does.
func (s *Server) demand(w http.ResponseWriter, r *http.Request) {
	if !s.controller(w, r) {
		return
	}
	var body runnerapi.DemandRequest
	if !decode(w, r, &body) {
		return
	}
	if len(body.Targets) > runnerapi.MostDemandTargets {
		refuse(w, http.StatusRequestEntityTooLarge, "at most "+strconv.Itoa(runnerapi.MostDemandTargets)+" targets per request")
		return
	}
	if fault := checkTargets(body.Targets); fault != "" {
		refuse(w, http.StatusBadRequest, fault)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), signalsTimeout)
	defer cancel()
	if err := s.opt.Ready(ctx); err != nil { // POOL-8: what a pool serves that the watch has not shown yet would be counted twice
		retryLater(w, time.Second, "demand is not known yet: "+err.Error())
		return
	}
	targets, err := s.opt.Dispatcher.TargetDemand(ctx, body.Targets)
	if errors.Is(err, fleet.ErrLedgerFrozen) { // the hold has been logged, once
		retryLater(w, 5*time.Second, "demand is unknown: "+err.Error())
		return
	}
	if err != nil {
		if r.Context().Err() == nil {
			s.opt.Log.ErrorContext(r.Context(), "reading the demand of targets", "error", err)
		}
		retryLater(w, time.Second, "the database does not respond: demand is unknown")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answer(w, http.StatusOK, runnerapi.DemandResponse{Targets: targets})
}

// checkTargets says in a sentence what is wrong with a request; empty: nothing.
func checkTargets(targets []runnerapi.DemandTarget) string {
	keys, seen := make(map[string]bool, len(targets)), 0
	for _, t := range targets {
		places := 0
		for _, place := range []string{t.Enterprise, t.Organization, t.Repository} {
			if place != "" {
				places++
			}
		}
		seen += len(t.Seen)
		switch {
		case t.Key == "" || keys[t.Key]:
			return "every target needs a unique key"
		case places != 1:
			return "every target needs exactly one of enterprise, organization and repository"
		case t.Repository != "" && strings.Count(t.Repository, "/") != 1:
			return "a repository must be owner/name"
		case len(t.Repositories) > 0 && t.Enterprise == "":
			return "repositories are for enterprise targets only"
		case len(t.Labels) > mostTargetLabels || len(t.Repositories) > mostTargetRepositories:
			return "a target has at most " + strconv.Itoa(mostTargetLabels) + " labels and " + strconv.Itoa(mostTargetRepositories) + " repositories"
		case seen > runnerapi.MostDemandSeen:
			return "at most " + strconv.Itoa(runnerapi.MostDemandSeen) + " jobs that were seen"
		}
		keys[t.Key] = true
	}
	return ""
}
