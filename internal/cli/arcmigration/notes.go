package arcmigration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// noteSelfRegistering says once what an installation needs for runners that register themselves. It is no finding, because nothing in the
// manifests can be changed about it.
func (r *Result) noteSelfRegistering() {
	number, labels := 0, map[string]bool{}
	for _, c := range r.made {
		if c.kind == v1alpha1.KindRunnerPool {
			continue
		}
		number++
		for _, label := range c.servedLabels() {
			// Those of every runner tell nothing apart: pools may have them, too.
			if label != "" && !slices.Contains(reservedLabels, label) {
				labels[label] = true
			}
		}
	}
	if number == 0 {
		return
	}
	note := fmt.Sprintf("self-registering runners (%d of the results) are ignored unless the chart's value selfRegistering.enabled is true", number)
	if len(labels) > 0 {
		note += ". Add to server.otherRunnerLabels: " + strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	}
	r.Notes = append(r.Notes, note)
}
