package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/server/poolaudit"
)

var _ poolaudit.Source = (*View)(nil)

// poolSpecEvent reports a pool that appeared, or whose spec changed. Updates of the status keep the generation.
func (v *View) poolSpecEvent(old, obj any) {
	pool, ok := obj.(*v1alpha1.RunnerPool)
	if !ok || v.opt.PoolSpecChanged == nil {
		return
	}
	if before, known := old.(*v1alpha1.RunnerPool); known && before.UID == pool.UID && before.Generation == pool.Generation {
		return
	}
	v.opt.PoolSpecChanged()
}

// NewGenerations are the pools with another generation than the known one.
func (v *View) NewGenerations(known map[string]int64) ([]poolaudit.Pool, error) {
	var pools []poolaudit.Pool
	for _, obj := range v.pools.GetStore().List() {
		pool, ok := obj.(*v1alpha1.RunnerPool)
		if !ok {
			continue
		}
		if generation, there := known[string(pool.UID)]; there && generation >= pool.Generation {
			continue
		}
		described, err := auditedPool(pool)
		if err != nil {
			return nil, err
		}
		pools = append(pools, described)
	}
	return pools, nil
}

// PoolUIDs are those of all pools; false before the first list.
func (v *View) PoolUIDs() ([]string, bool) {
	uids := []string{}
	for _, obj := range v.pools.GetStore().List() {
		if pool, ok := obj.(*v1alpha1.RunnerPool); ok {
			uids = append(uids, string(pool.UID))
		}
	}
	return uids, v.pools.HasSynced()
}

func auditedPool(pool *v1alpha1.RunnerPool) (poolaudit.Pool, error) {
	spec := map[string]any{}
	if err := convert(pool.Spec, &spec); err != nil {
		return poolaudit.Pool{}, fmt.Errorf("encoding the spec of pool %s: %w", pool.Name, err)
	}
	if template, there := spec["template"]; there { // it is long, and its environment variables may be secret
		text, err := json.Marshal(template)
		if err != nil {
			return poolaudit.Pool{}, fmt.Errorf("encoding the template of pool %s: %w", pool.Name, err)
		}
		digest := sha256.Sum256(text)
		spec["template"] = "sha256:" + hex.EncodeToString(digest[:8])
	}
	return poolaudit.Pool{
		Namespace: pool.Namespace, Name: pool.Name, UID: string(pool.UID), Generation: pool.Generation, Spec: spec,
		Managers: managers(pool.ManagedFields), Author: authorOf(pool), Note: pool.Annotations[v1alpha1.AnnotationIntakeNote],
	}, nil
}

func convert(from any, into *map[string]any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// managers are those of fields of the spec.
func managers(entries []metav1.ManagedFieldsEntry) []poolaudit.Manager {
	var all []poolaudit.Manager
	for _, entry := range entries {
		var fields struct {
			Spec map[string]any `json:"f:spec"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil || len(fields.Spec) == 0 {
			continue
		}
		m := poolaudit.Manager{Name: entry.Manager, Spec: fields.Spec}
		if entry.Time != nil {
			m.At = entry.Time.UTC()
		}
		all = append(all, m)
	}
	return all
}

// authorOf is the user whom the annotation names for this generation of this pool.
func authorOf(pool *v1alpha1.RunnerPool) string {
	user, current := strings.CutPrefix(pool.Annotations[v1alpha1.AnnotationChangedBy], v1alpha1.ChangedBy(pool.UID, pool.Generation, ""))
	if !current {
		return ""
	}
	return user
}
