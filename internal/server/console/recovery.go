package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// recoveryView is what this server has put right since it started.
type recoveryView struct {
	Started                  time.Time
	Recoveries               []counted
	Skipped, Capped, Catchup []counted
	Doubtful                 int64
}

// counted is one counter.
type counted struct {
	Name string
	N    int64
}

// loadRecovery shows counters of this process: whoever may see jobs may see how often they were put right.
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
		case "bullpen_recovery_doubtful":
			for _, m := range family.GetMetric() {
				view.Doubtful += int64(m.GetGauge().GetValue())
			}
		case "bullpen_recoveries_total":
			view.Recoveries = counters(family)
		case "bullpen_recovery_skipped_total":
			view.Skipped = counters(family)
		case "bullpen_recovery_capped_total":
			view.Capped = counters(family)
		case "bullpen_catchup_deliveries_total":
			view.Catchup = counters(family)
		}
	}
	return "Recovery", view, nil
}

// counters are those of one name, by their one label, the largest first.
func counters(family *dto.MetricFamily) []counted {
	var list []counted
	for _, m := range family.GetMetric() {
		one := counted{N: int64(m.GetCounter().GetValue())}
		for _, label := range m.GetLabel() {
			one.Name = label.GetValue()
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b counted) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	return list
}
