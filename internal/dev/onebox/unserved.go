package onebox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// unservedWatch reports jobs that no pool serves as soon as they are queued: they would be queued for ever (CLAIM-21).
type unservedWatch struct {
	pools   func(ctx context.Context) ([]fleet.LabelledPool, error)
	checked map[int64]bool
	// at is the stateFlag of the command that cancels a run.
	at string
}

// look reports the jobs that were queued since the last call. Pools are read only if there are such jobs; if they cannot be read, the jobs are
// checked the next time.
func (w *unservedWatch) look(ctx context.Context, jobs []standin.JobView) []Event {
	var queued []standin.JobView
	for _, job := range jobs {
		if job.Status == "queued" && !job.Assigned && !w.checked[job.ID] {
			queued = append(queued, job)
		}
	}
	if len(queued) == 0 {
		return nil
	}
	pools, err := w.pools(ctx)
	if err != nil {
		return nil
	}
	if w.checked == nil {
		w.checked = map[int64]bool{}
	}
	events := unservedEvents(pools, queued)
	for _, job := range queued {
		w.checked[job.ID] = true
		for i := range events {
			if events[i].Job.ID == job.ID {
				events[i].Message += fmt.Sprintf(" `bullpen cancel --run %d%s` cancels the run.", job.RunID, w.at)
			}
		}
	}
	return events
}

// unservedEvents has one event for each set of labels that no pool serves, in the order of the jobs. It is pure.
func unservedEvents(pools []fleet.LabelledPool, jobs []standin.JobView) []Event {
	var events []Event
	first, more := map[string]int{}, map[string]int{}
	for _, job := range jobs {
		if slices.ContainsFunc(pools, func(p fleet.LabelledPool) bool { return p.Serves(job.Labels) }) {
			continue
		}
		key := strings.Join(job.Labels, "\x00")
		if _, known := first[key]; known {
			more[key]++
			continue
		}
		first[key] = len(events)
		events = append(events, Event{Kind: EventNote, Job: &JobChange{ID: job.ID, Name: job.Name, Status: job.Status}})
	}
	for _, job := range jobs {
		key := strings.Join(job.Labels, "\x00")
		if i, known := first[key]; known && events[i].Job.ID == job.ID {
			events[i].Message = unservedSentence(pools, job, more[key])
		}
	}
	return events
}

// unservedSentence names the job, its labels, the nearest pool and the label to write.
func unservedSentence(pools []fleet.LabelledPool, job standin.JobView, more int) string {
	name := "job " + job.Name
	if more > 0 {
		name += fmt.Sprintf(" (and %d more)", more)
	}
	if len(job.Labels) == 0 {
		return name + " stays queued: its runs-on names no label. " + fleet.UnservedRemedy(pools, nil, nil)
	}
	says := []string{name + " stays queued: no pool serves " + strings.Join(job.Labels, ", ") + "."}
	near := fleet.Nearest(pools, job.Labels)
	if text := fleet.NearestText(near); text != "" {
		says = append(says, text)
	}
	if (fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}).Of(job.Labels) == fleet.OutsideGitHub {
		says = append(says, "GitHub's own runners are not part of the stand-in.")
	}
	return strings.Join(append(says, fleet.UnservedRemedy(pools, job.Labels, near)), " ")
}

// labelledPools reads the pools as they are now.
func labelledPools(admin *rest.Config) (func(ctx context.Context) ([]fleet.LabelledPool, error), error) {
	applier, err := newApplier(admin)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) ([]fleet.LabelledPool, error) {
		list := poolList()
		if err := applier.client.List(ctx, list, client.InNamespace(RunnerNamespace)); err != nil {
			return nil, fmt.Errorf("listing the pools: %w", err)
		}
		pools := make([]fleet.LabelledPool, len(list.Items))
		for i := range list.Items {
			pools[i] = labelledPool(&list.Items[i])
		}
		return pools, nil
	}, nil
}

func labelledPool(pool *unstructured.Unstructured) fleet.LabelledPool {
	labels, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "labels")
	return fleet.LabelledPool{Namespace: pool.GetNamespace(), Name: pool.GetName(), Labels: labels, Terminating: pool.GetDeletionTimestamp() != nil}
}
