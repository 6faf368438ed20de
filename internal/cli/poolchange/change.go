package poolchange

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Setting is a field of a RunnerPool and the value that it should have: an int64, a bool or a string.
type Setting struct {
	Flag  string // without dashes
	Path  []string
	Value any
}

// Field is one that a command line can set.
type Field struct {
	Flag string
	Path []string
	Size bool // it decides how many runners there are
}

// Fields are those that a command line can set, in the order in which they are shown.
func Fields() []Field {
	return []Field{
		{"replicas", []string{"spec", "replicas"}, true},
		{"autoscaling", []string{"spec", "autoscaling", "enabled"}, true},
		{"min-idle", []string{"spec", "autoscaling", "minIdle"}, true},
		{"max-replicas", []string{"spec", "autoscaling", "maxReplicas"}, true},
		{"scale-down-cooldown", []string{"spec", "autoscaling", "scaleDownCooldown"}, false},
		{"stabilization", []string{"spec", "autoscaling", "stabilization"}, false},
		{"idle-timeout", []string{"spec", "idleTimeout"}, false},
		{"max-runner-age", []string{"spec", "maxRunnerAge"}, false},
		{"queueing", []string{"spec", "queueing"}, false},
		{"image", []string{"spec", "template", "image"}, false},
	}
}

func (c Changed) size() bool {
	return slices.ContainsFunc(Fields(), func(f Field) bool { return f.Size && strings.Join(f.Path, ".") == c.Field })
}

// Set returns the setting of the field that a flag names.
func Set(flag string, value any) Setting {
	fields := Fields()
	at := slices.IndexFunc(fields, func(f Field) bool { return f.Flag == flag })
	return Setting{Flag: flag, Path: fields[at].Path, Value: value}
}

// Changed is a field before and after a change.
type Changed struct {
	Field string `json:"field"` // such as spec.autoscaling.minIdle
	Was   any    `json:"was,omitempty"`
	Value any    `json:"value"`
	// Managers are the others that manage the field, if its value changes.
	Managers []Manager `json:"-"`
}

// Same says whether the field has the value already.
func (c Changed) Same() bool { return equal(c.Was, c.Value) }

// Change is what to do.
type Change struct {
	Fields []Changed
	// Patch is a merge patch of the fields that are different, with the version of the pool that was read; nil if there is none.
	Patch map[string]any
}

// RejectedError is a change that would have no effect, or that contradicts itself.
type RejectedError struct{ text string }

// Error says why, and what to do.
func (e *RejectedError) Error() string { return e.text }

func rejected(format string, args ...any) error {
	return &RejectedError{fmt.Sprintf(format, args...)}
}

// Decide returns the change of a pool that makes these settings true, or a *RejectedError.
func Decide(pool *unstructured.Unstructured, settings []Setting) (Change, error) {
	after, change := pool.DeepCopy(), Change{}
	for _, s := range settings {
		was, _, err := unstructured.NestedFieldNoCopy(pool.Object, s.Path...)
		if err != nil {
			return Change{}, fmt.Errorf("reading %s of pool %s: %w", strings.Join(s.Path, "."), pool.GetName(), err)
		}
		if err := unstructured.SetNestedField(after.Object, s.Value, s.Path...); err != nil {
			return Change{}, fmt.Errorf("setting %s of pool %s: %w", strings.Join(s.Path, "."), pool.GetName(), err)
		}
		field := Changed{Field: strings.Join(s.Path, "."), Was: was, Value: s.Value}
		if !field.Same() {
			if field.Managers, err = managersOf(pool.GetManagedFields(), s.Path); err != nil {
				return Change{}, err
			}
			if change.Patch == nil {
				change.Patch = map[string]any{"metadata": map[string]any{"resourceVersion": pool.GetResourceVersion()}}
			}
			if err := unstructured.SetNestedField(change.Patch, s.Value, s.Path...); err != nil {
				return Change{}, fmt.Errorf("building the change of %s: %w", field.Field, err)
			}
		}
		change.Fields = append(change.Fields, field)
	}
	if err := check(after, settings); err != nil {
		return Change{}, err
	}
	return change, checkOff(pool, settings)
}

// checkOff rejects turning autoscaling off without a number of runners: the one in the spec may be years old, and applies at once.
func checkOff(before *unstructured.Unstructured, settings []Setting) error {
	has := func(flag string, value any) bool {
		return slices.ContainsFunc(settings, func(s Setting) bool { return s.Flag == flag && (value == nil || s.Value == value) })
	}
	enabled, _, _ := unstructured.NestedBool(before.Object, "spec", "autoscaling", "enabled")
	if !enabled || !has("autoscaling", false) || has("replicas", nil) {
		return nil
	}
	replicas, found, _ := unstructured.NestedInt64(before.Object, "spec", "replicas")
	if !found {
		replicas = 1 // the field's default
	}
	return rejected("without autoscaling spec.replicas (%d) applies at once, and idle runners beyond it are removed: add --replicas N", replicas)
}

// check rejects a pool as it would be after the settings.
func check(after *unstructured.Unstructured, settings []Setting) error {
	name := after.GetName()
	enabled, _, _ := unstructured.NestedBool(after.Object, "spec", "autoscaling", "enabled")
	least, hasLeast := number(after, "minIdle")
	most, hasMost := number(after, "maxReplicas")
	replicas := slices.ContainsFunc(settings, func(s Setting) bool { return s.Flag == "replicas" })
	switch {
	case enabled && replicas:
		return rejected("pool %s is autoscaled%s: replicas has no effect. Use `bullpen pool set %s --min-idle N --max-replicas N`, or turn autoscaling off with "+
			"`bullpen pool set %s --autoscaling=false --replicas N`", name, size(least, hasLeast, most, hasMost), name, name)
	case enabled && !hasMost:
		return rejected("autoscaling needs a maximum: add --max-replicas N")
	case enabled && hasLeast && least > most:
		return rejected("minIdle would be %d and maxReplicas %d: raise --max-replicas, or lower --min-idle", least, most)
	}
	for _, s := range settings {
		if !enabled && s.Path[1] == "autoscaling" && s.Flag != "autoscaling" {
			return rejected("pool %s is not autoscaled: --%s has no effect. Use `bullpen pool scale %s --replicas N`, or turn autoscaling on with "+
				"`bullpen pool set %s --autoscaling --max-replicas N`", name, s.Flag, name, name)
		}
	}
	return nil
}

func number(pool *unstructured.Unstructured, field string) (int64, bool) {
	n, found, err := unstructured.NestedInt64(pool.Object, "spec", "autoscaling", field)
	return n, found && err == nil
}

// size names the fields that decide the size of an autoscaled pool.
func size(least int64, hasLeast bool, most int64, hasMost bool) string {
	var known []string
	if hasLeast {
		known = append(known, fmt.Sprintf("minIdle %d", least))
	}
	if hasMost {
		known = append(known, fmt.Sprintf("maxReplicas %d", most))
	}
	if len(known) == 0 {
		return ""
	}
	return " (" + strings.Join(known, ", ") + ")"
}

// ErrChanged is returned when the fields were changed by another client since they were read first.
var ErrChanged = errors.New("the fields have changed")

// StillFrom returns ErrChanged if the fields had other values when they were read before.
func (c Change) StillFrom(before Change) error {
	same := slices.EqualFunc(c.Fields, before.Fields, func(a, b Changed) bool { return a.Field == b.Field && equal(a.Was, b.Was) })
	if !same {
		return ErrChanged
	}
	return nil
}

// equal compares values of fields. 5m and 5m0s are the same duration.
func equal(a, b any) bool {
	if a == b {
		return true
	}
	textA, okA := a.(string)
	textB, okB := b.(string)
	if !okA || !okB {
		return false
	}
	durationA, errA := time.ParseDuration(textA)
	durationB, errB := time.ParseDuration(textB)
	return errA == nil && errB == nil && durationA == durationB
}

// Duration is a duration as a field holds it: 5m, and not 5m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
