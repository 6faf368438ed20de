package top

import (
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// The codes of bullpen why for a job that no pool serves: the second if it has no labels.
const (
	codeNoPool   = "no-pool"
	codeNoLabels = "no-labels"
)

// explainUnserved says of each queued job whose labels no pool serves why it is queued, without a request for it: so the list shows as many of
// them as the headline counts.
func (f *Fleet) explainUnserved() {
	if f.Pools.Unserved == nil {
		return
	}
	unserved := map[string]bool{}
	for _, set := range f.Pools.Unserved.LabelSets {
		unserved[labelSet(set.Labels)] = true
	}
	for _, job := range f.Jobs {
		if (job.State == adminapi.JobNoPool || job.State == adminapi.JobQueued) && f.Why[job.ID] == "" && unserved[labelSet(job.Labels)] {
			f.Why[job.ID] = codeNoPool
			if len(job.Labels) == 0 {
				f.Why[job.ID] = codeNoLabels
			}
		}
	}
}

// labelSet is the same for labels in any order and case.
func labelSet(labels []string) string {
	folded := make([]string, len(labels))
	for i, label := range labels {
		folded[i] = strings.ToLower(strings.TrimSpace(label))
	}
	slices.Sort(folded)
	return strings.Join(slices.Compact(folded), "\x00")
}
