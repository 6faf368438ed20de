package helmchart

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"

	"github.com/bullpen-ci/bullpen/charts"
)

var metricName = regexp.MustCompile(`\bbullpen_[a-z0-9_]+`)

// MetricNames are the product's metrics that the chart's alerts and dashboard name, in order.
func MetricNames() ([]string, error) {
	names := map[string]bool{}
	for _, file := range []string{"monitoring/alerts.yaml", "monitoring/dashboard.json"} {
		text, err := fs.ReadFile(charts.Source(), file)
		if err != nil {
			return nil, fmt.Errorf("reading the chart: %w", err)
		}
		for _, name := range metricName.FindAllString(string(text), -1) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

var description = regexp.MustCompile(`fqName: "([^"]+)"`)

// Exports reports whether a metric is among described ones, which are what collectors say of themselves (fmt's %v of a
// prometheus.Desc). A histogram's series carry a suffix.
func Exports(described []string, metric string) bool {
	base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
	return slices.ContainsFunc(described, func(text string) bool {
		found := description.FindStringSubmatch(text)
		return found != nil && (found[1] == metric || found[1] == base)
	})
}
