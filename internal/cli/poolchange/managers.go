package poolchange

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Field managers.
const (
	OwnManager  = "bullpen-pool" // of the fields that these commands write
	UpManager   = "bullpen-up"   // of bullpen up
	helmManager = "helm"         // of Helm 4
)

// Manager is another client that manages a field.
type Manager struct {
	Name string
	// Applies: it uses server-side apply, so a conflict is reported instead of a change.
	Applies bool
}

// ConflictError is a change of fields that another manager applies.
type ConflictError struct {
	Pool     string
	Managers []string
	Fields   []string
}

// Error names the managers and the fields.
func (e *ConflictError) Error() string {
	is, it := "is", "it"
	if len(e.Fields) > 1 {
		is, it = "are", "them"
	}
	return fmt.Sprintf("conflict: %s of pool %s %s managed by %s. Change %s there, or overwrite with --force-conflicts",
		strings.Join(e.Fields, ", "), e.Pool, is, strings.Join(e.Managers, ", "), it)
}

// Conflicts returns a *ConflictError if another manager applies a field that would change, as the API server does for server-side apply.
func (c Change) Conflicts(pool string) error {
	conflict := ConflictError{Pool: pool}
	for _, field := range c.Fields {
		for _, manager := range field.Managers {
			if !manager.Applies || field.takenFrom(manager) {
				continue
			}
			if !slices.Contains(conflict.Managers, manager.Name) {
				conflict.Managers = append(conflict.Managers, manager.Name)
			}
			if !slices.Contains(conflict.Fields, field.Field) {
				conflict.Fields = append(conflict.Fields, field.Field)
			}
		}
	}
	if len(conflict.Fields) == 0 {
		return nil
	}
	return &conflict
}

// takenFrom says whether the field is taken over from a manager without being asked to: from one that only runs when a user runs it, and
// sizes only (ADR 0059). A tool that reconciles would set the field again within minutes.
func (c Changed) takenFrom(m Manager) bool {
	return c.size() && m.Applies && (m.Name == UpManager || m.Name == helmManager)
}

// Notes say what becomes of a size that was taken over from bullpen up.
func (c Change) Notes() []string {
	for _, field := range c.Fields {
		for _, manager := range field.Managers {
			if field.takenFrom(manager) && manager.Name == UpManager {
				return []string{"`bullpen up` keeps this size when it starts again."}
			}
		}
	}
	return nil
}

// Warnings name the managers that may set a field again.
func (c Change) Warnings() []string {
	var warnings []string
	for _, field := range c.Fields {
		for _, manager := range field.Managers {
			if field.takenFrom(manager) {
				if manager.Name == helmManager {
					warnings = append(warnings, fmt.Sprintf("%s was managed by helm: put %v into the release's values too, or the next helm upgrade reports a conflict", field.Field, field.Value))
				}
				continue
			}
			warnings = append(warnings, fmt.Sprintf("%s was managed by %s, which reverts this change if it writes the field again", field.Field, manager.Name))
		}
	}
	return warnings
}

// managersOf returns the other managers of a field.
func managersOf(entries []metav1.ManagedFieldsEntry, path []string) ([]Manager, error) {
	var managers []Manager
	for _, entry := range entries {
		if entry.Manager == OwnManager || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var owned map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned); err != nil {
			return nil, fmt.Errorf("reading the fields of manager %s: %w", entry.Manager, err)
		}
		if owns(owned, path) {
			managers = append(managers, Manager{Name: entry.Manager, Applies: entry.Operation == metav1.ManagedFieldsOperationApply})
		}
	}
	return managers, nil
}

// ManagedBy says whether a manager has a field of a pool, by whatever operation.
func ManagedBy(entries []metav1.ManagedFieldsEntry, manager string, path []string) (bool, error) {
	for _, entry := range entries {
		if entry.Manager != manager || entry.FieldsV1 == nil {
			continue
		}
		var owned map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned); err != nil {
			return false, fmt.Errorf("reading the fields of manager %s: %w", manager, err)
		}
		if owns(owned, path) {
			return true, nil
		}
	}
	return false, nil
}

// owns says whether a set of fields has the field at a path, or an atomic object above it.
func owns(set map[string]any, path []string) bool {
	for _, segment := range path {
		below, ok := set["f:"+segment].(map[string]any)
		if !ok {
			return false
		}
		if len(below) == 0 {
			return true
		}
		set = below
	}
	return true
}
