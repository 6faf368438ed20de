package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// recoveryView is what this server has repaired since it started.
type recoveryView struct {
	Started  time.Time
	Groups   []counters
	Doubtful int64
}

// counters are those of one kind that have risen, and those that have not.
type counters struct {
	ID, Title string
	Risen     []counted
	Still     []counted
}

// Quiet reports whether nothing was repaired.
func (r recoveryView) Quiet() bool {
	return r.Doubtful == 0 && !slices.ContainsFunc(r.Groups, func(g counters) bool { return len(g.Risen) > 0 })
}

// counted is one counter.
type counted struct {
	Name string
	N    int64
}

// loadRecovery shows counters of this process: a user who may see jobs may see how often they were repaired.
func loadRecovery(c *Console, v *visitor, _ location) (string, any, error) {
	if err := v.get(adminapi.PathJobs+"?limit=1", &adminapi.JobList{}); err != nil {
		return "", nil, err
	}
	families, err := c.opt.Counters.Gather()
	if err != nil {
		return "", nil, fmt.Errorf("reading this process's counters: %w", err)
	}
	var view recoveryView
	for _, family := range families {
		switch family.GetName() {
		case "process_start_time_seconds":
			for _, m := range family.GetMetric() {
				view.Started = time.Unix(int64(m.GetGauge().GetValue()), 0)
			}
		case "bullpen_recovery_unknown":
			for _, m := range family.GetMetric() {
				view.Doubtful += int64(m.GetGauge().GetValue())
			}
		case "bullpen_recoveries_total":
			view.Groups = append(view.Groups, countersOf("repairs", "Repairs", family))
		case "bullpen_recovery_skipped_total":
			view.Groups = append(view.Groups, countersOf("skipped", "Skipped, by reason", family))
		case "bullpen_recovery_capped_total":
			view.Groups = append(view.Groups, countersOf("deferred", "Deferred to the next pass", family))
		case "bullpen_catchup_deliveries_total":
			view.Groups = append(view.Groups, countersOf("webhooks", "Missed webhooks", family))
		}
	}
	return "Recovery", view, nil
}

// countersOf are those of one name, by their one label, the largest first.
func countersOf(id, title string, family *dto.MetricFamily) counters {
	group := counters{ID: id, Title: title}
	var list []counted
	for _, m := range family.GetMetric() {
		one := counted{N: int64(m.GetCounter().GetValue())}
		for _, label := range m.GetLabel() {
			one.Name = label.GetValue()
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b counted) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	for _, one := range list {
		if one.N > 0 {
			group.Risen = append(group.Risen, one)
		} else {
			group.Still = append(group.Still, one)
		}
	}
	return group
}
