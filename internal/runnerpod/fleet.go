package runnerpod

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Fleet names the group of pools that share nodes: those of one platform whose pods may run on the same nodes, as their
// templates say by nodeSelector and required node affinity. It is a key, for comparing and for maps, and equal for
// equal templates whatever the order of their maps.
func Fleet(pool *v1alpha1.RunnerPool) (string, error) {
	var required *corev1.NodeSelector
	if affinity := pool.Spec.Template.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		required = affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	selector := nodeSelectorOf(pool)
	if pool.Spec.Platform == v1alpha1.PlatformMacOS { // the controller puts this one in, whether the template has it or not
		selector = maps.Clone(selector)
		delete(selector, corev1.LabelOSStable)
	}
	key, err := json.Marshal(struct {
		Namespace string
		Platform  v1alpha1.Platform
		Selector  map[string]string    `json:",omitempty"`
		Required  *corev1.NodeSelector `json:",omitempty"`
	}{pool.Namespace, pool.Spec.Platform, selector, required})
	if err != nil {
		return "", fmt.Errorf("naming the fleet of pool %s: %w", pool.Name, err)
	}
	return string(key), nil
}
