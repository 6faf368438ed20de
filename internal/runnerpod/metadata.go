package runnerpod

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// written are the annotations outside Bullpen's own domain that Bullpen writes on runner pods.
var written = []string{AnnotationSafeToEvict, AnnotationDoNotDisrupt, AnnotationDefaultContainer}

// checkMetadata refuses labels and annotations that Bullpen relies on (NET-4), and those that the API server would refuse
// on every pod.
func checkMetadata(m *v1alpha1.RunnerPodMetadata) error {
	if m == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		if err := checkKey("labels", key, key); err != nil {
			return err
		}
		if problems := validation.IsValidLabelValue(m.Labels[key]); len(problems) > 0 {
			return refuse("spec.template.metadata.labels: invalid label value of %s: %s", key, problems[0])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		if err := checkKey("annotations", key, strings.ToLower(key)); err != nil {
			return err
		}
		if slices.Contains(written, key) {
			return refuse("spec.template.metadata.annotations: %s is reserved for Bullpen: remove it", key)
		}
	}
	return nil
}

// checkKey checks a key, and its form, which the API server reads without regard to case in annotations.
func checkKey(field, key, form string) error {
	if strings.HasPrefix(key, ourDomain) {
		return refuse("spec.template.metadata.%s: keys that begin with %s are reserved for Bullpen: remove %s", field, ourDomain, key) // NET-4
	}
	if problems := validation.IsQualifiedName(form); len(problems) > 0 {
		return refuse("spec.template.metadata.%s: %q is not a valid key: %s", field, key, problems[0])
	}
	return nil
}

// addMetadata gives a pod the template's labels and annotations. Those that it has already stay.
func addMetadata(labels, annotations *map[string]string, m *v1alpha1.RunnerPodMetadata) {
	if m == nil {
		return
	}
	*labels = under(m.Labels, *labels)
	*annotations = under(m.Annotations, *annotations)
}

func under(theirs, ours map[string]string) map[string]string {
	all := maps.Clone(theirs)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, ours)
	return all
}
