package poolaudit

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// Fields of a pool's spec that decide the action of its audit event.
const (
	fieldIntake      = "intake"
	fieldReplicas    = "replicas"
	fieldAutoscaling = "autoscaling"
)

// Pool is a RunnerPool at one generation of its spec.
type Pool struct {
	Namespace, Name, UID string
	Generation           int64
	// Spec as decoded JSON. Values that are too long for a log, or could be secret, are digests.
	Spec map[string]any
	// Managers of fields, in any order.
	Managers []Manager
	// Author is the user whom the pool names for this generation; empty: none.
	Author string
	// Note says why the pool is paused or drained.
	Note string
}

// Manager is a field manager, as in metadata.managedFields.
type Manager struct {
	Name string
	At   time.Time // zero: unknown, as for the scale subresource
	// Spec has its fields of the spec, in the form of FieldsV1.
	Spec map[string]any
}

// Change is what differs between two generations of a pool.
type Change struct {
	Action        string
	Before, After map[string]any // fields that differ
	Manager       string         // empty: unknown
	At            time.Time      // zero: unknown
	Reason        string
}

// Compare returns what changed since the spec was the earlier one; false if nothing did. The API server also raises the generation of a
// pool that is being deleted.
func Compare(earlier map[string]any, pool Pool) (Change, bool) {
	c := Change{}
	c.Before, c.After = differences(earlier, pool.Spec)
	if len(c.Before) == 0 && len(c.After) == 0 {
		return Change{}, false
	}
	c.Action = action(c.Before, c.After)
	if m, known := manager(pool.Managers, c.Before, c.After); known {
		c.Manager, c.At = m.Name, m.At
	}
	if c.Action == adminapi.ActionPoolPause || c.Action == adminapi.ActionPoolDrain {
		c.Reason = reason(pool.Note, pool.Author)
	}
	return c, true
}

// differences are the fields that differ, each with its names above it. Lists differ as a whole.
func differences(before, after map[string]any) (was, is map[string]any) {
	was, is = map[string]any{}, map[string]any{}
	names := maps.Clone(before)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, after)
	for name := range names {
		b, had := before[name]
		a, has := after[name]
		if reflect.DeepEqual(b, a) && had == has {
			continue
		}
		innerBefore, bothBefore := b.(map[string]any)
		innerAfter, bothAfter := a.(map[string]any)
		if bothBefore && bothAfter {
			b, a = differences(innerBefore, innerAfter)
		}
		if had {
			was[name] = b
		}
		if has {
			is[name] = a
		}
	}
	return was, is
}

func action(before, after map[string]any) string {
	changed := maps.Clone(before)
	maps.Copy(changed, after)
	if _, intake := changed[fieldIntake]; intake {
		switch after[fieldIntake] {
		case "Paused":
			return adminapi.ActionPoolPause
		case "Drained":
			return adminapi.ActionPoolDrain
		}
		return adminapi.ActionPoolResume // a missing intake is an open one
	}
	delete(changed, fieldReplicas)
	delete(changed, fieldAutoscaling)
	if len(changed) == 0 {
		return adminapi.ActionPoolScale
	}
	return adminapi.ActionPoolSet
}

// manager is the one that wrote last among those that own a changed field. The fields of other managers say nothing about this change: the
// API server may record none for it, as for a removed field, or for the scale subresource when spec.replicas had no manager.
func manager(all []Manager, before, after map[string]any) (Manager, bool) {
	var owner Manager
	for _, m := range all {
		if (owns(m.Spec, after) || owns(m.Spec, before)) && (owner.Name == "" || m.At.After(owner.At)) {
			owner = m
		}
	}
	return owner, owner.Name != ""
}

// owns says whether fields in the form of FieldsV1 include one of the values.
func owns(fields, values map[string]any) bool {
	for name, value := range values {
		inner, owned := fields["f:"+name].(map[string]any)
		if !owned {
			continue
		}
		deeper, object := value.(map[string]any)
		if !object || len(inner) == 0 || owns(inner, deeper) { // what is owned as a whole has no inner fields
			return true
		}
	}
	return false
}

// reason is the end of a note that bullpen pool pause or drain wrote for that user.
func reason(note, author string) string {
	if author == "" {
		return ""
	}
	rest, ours := strings.CutPrefix(note, "by "+author+" since ")
	_, why, given := strings.Cut(rest, ": ")
	if !ours || !given {
		return ""
	}
	return why
}
