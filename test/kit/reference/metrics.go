package reference

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is one that a program exports.
type Metric struct {
	Name, Help string
	Labels     []string
}

// description is how the library shows one: it keeps its fields to itself.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// MetricsOf are Bullpen's own metrics of a registry, by name. Those of Go, the process and the libraries are left out.
func MetricsOf(registry prometheus.Collector) ([]Metric, error) {
	found := make(chan *prometheus.Desc)
	go func() {
		defer close(found)
		registry.Describe(found)
	}()
	byName := map[string]Metric{}
	var bad error
	for d := range found { // bounded: it is closed above
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			bad = fmt.Errorf("reading %s: the library writes descriptions in another way", d)
			continue
		}
		if !strings.HasPrefix(parts[1], "bullpen_") {
			continue
		}
		m := Metric{Name: parts[1], Help: strings.ReplaceAll(parts[2], `\"`, `"`)}
		for _, label := range append(constants(parts[3]), strings.Split(parts[4], ",")...) {
			if label != "" {
				m.Labels = append(m.Labels, label)
			}
		}
		byName[m.Name] = m
	}
	var all []Metric
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all, bad
}

var constant = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)

// constants are the names of labels that each have one value.
func constants(text string) []string {
	var names []string
	for _, found := range constant.FindAllStringSubmatch(text, -1) {
		names = append(names, found[1])
	}
	return names
}

// histograms are those of the names that do not end as counters do. A description does not tell; the tests compare with what is exported.
var histograms = []string{"_duration_seconds", "bullpen_job_wait_seconds", "bullpen_job_phase_seconds", "bullpen_recovery_delay_seconds"}

// Type is counter, gauge or histogram, by the name.
func (m Metric) Type() string {
	if strings.HasSuffix(m.Name, "_total") {
		return "counter"
	}
	for _, end := range histograms {
		if strings.HasSuffix(m.Name, end) {
			return "histogram"
		}
	}
	return "gauge"
}

// Program is what exports metrics, and where.
type Program struct {
	Name, Where string
	Metrics     []Metric
}

// Metrics is docs/reference/metrics.md.
func Metrics(programs []Program) string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n" + written + `
Every metric that Bullpen's programs register. Each program also exports those of Go and of its process (` + "`go_*`, `process_*`" + `), and
the controller those of its library (` + "`controller_runtime_*`, `workqueue_*`, `rest_client_*`" + `). A metric with labels is exported once it has
a value.

No label has unbounded cardinality: none names a job, a runner, a runner's pod or a repository. Series of ` + "`pool`, `name`" + ` (the owner of
runners) and ` + "`installation`" + ` exist as long as their object. Alerts are in [the runbooks](../runbooks/README.md).
`)
	for _, program := range programs {
		fmt.Fprintf(&b, "\n## bullpen %s\n\n%s\n\n| metric | type | labels | |\n|---|---|---|---|\n", program.Name, program.Where)
		for _, m := range program.Metrics {
			labels := ""
			if len(m.Labels) > 0 {
				labels = "`" + strings.Join(m.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type(), labels, cell(m.Help))
		}
	}
	return b.String()
}
