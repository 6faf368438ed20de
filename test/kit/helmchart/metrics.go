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
	return MetricNamesIn(charts.Source(), "monitoring/alerts.yaml", "monitoring/dashboard.json")
}

// MetricNamesIn are those that some files name, in order; files are patterns as path.Match has them.
func MetricNamesIn(dir fs.FS, files ...string) ([]string, error) {
	names := map[string]bool{}
	for _, pattern := range files {
		found, err := fs.Glob(dir, pattern)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", pattern, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("looking for %s: %w", pattern, fs.ErrNotExist)
		}
		for _, file := range found {
			text, err := fs.ReadFile(dir, file)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", file, err)
			}
			for _, name := range metricName.FindAllString(string(text), -1) {
				names[name] = true
			}
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
