package runnerpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// registeredHashVersion is raised when a change of this package must reach runners that already exist, as hashVersion is. Runners that were
// made at version 1 have no limit on their disk (TEN-6).
const registeredHashVersion = 2

// RegisteredHash distinguishes runners of different templates. It covers the spec that shapes a runner, other shaping parts
// of its owner (such as volume claims), and the installation's options. Equal specs hash equally however their quantities
// are written, and so do defaults. It is a label's value of 32 characters: half of a SHA-256.
func RegisteredHash(spec *v1alpha1.RunnerSpec, options Options, more ...any) (string, error) {
	s := spec.DeepCopy()
	s.RegistrationTimeout = nil // it shapes no pod
	s.Ephemeral = ptr.To(ptr.Deref(s.Ephemeral, true))
	s.Labels = slices.Sorted(slices.Values(s.Labels)) // GitHub keeps them in no order
	if s.ContainerMode == "" {
		s.ContainerMode = v1alpha1.ContainerModeNone
	}
	if s.WorkFolder == "" {
		s.WorkFolder = DefaultWorkFolder
	}
	if s.ContainerMode == v1alpha1.ContainerModeDind {
		given := ptr.Deref(s.Dind, v1alpha1.Dind{})
		s.Dind = ptr.To(dindDefaults(&given))
	}
	if s.Build == v1alpha1.BuildWithBuildKit {
		s.BuildKit = buildKitDefaults(s.BuildKit)
	}
	if s.JobContainers != nil && s.JobContainers.SecurityProfile == "" {
		s.JobContainers.SecurityProfile = v1alpha1.ProfileBaseline
	}
	pod := &s.Template.Spec
	pod.TerminationGracePeriodSeconds = ptr.To(ptr.Deref(pod.TerminationGracePeriodSeconds, DefaultGraceSeconds))
	pod.RestartPolicy = "" // it has no effect
	parts := []any{registeredHashVersion, options.AgentImage, options.hashedAgentCommand(), s}
	parts = append(parts, more...)
	if options.Egress != nil { // absent: runners that connect directly are as good as those that were made before it was part of the hash
		parts = append(parts, options.Egress)
	}
	if s.JobContainers != nil {
		parts = append(parts, options.JobContainersKey) // JOB-3: requests of other pods could not be opened
	}
	sum := sha256.New()
	for i, part := range parts {
		text, err := json.Marshal(canonical(part))
		if err != nil {
			return "", fmt.Errorf("hashing part %d of a runner's template: %w", i, err)
		}
		sum.Write(append(text, '\n')) // JSON of one line each: no two lists of parts look the same
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// canonical is the value as plain data that marshals to the same text for equal values: fields by their JSON names, absent
// where they are empty, and quantities by how much they are.
func canonical(value any) any {
	v := reflect.ValueOf(value)
	if !v.IsValid() {
		return nil
	}
	return plain(v)
}

func plain(v reflect.Value) any {
	if v.Type() == quantityType {
		q := v.Interface().(resource.Quantity) //nolint:forcetypeassert // it is of that type
		q = q.DeepCopy()
		return resource.NewDecimalQuantity(*q.AsDec(), resource.DecimalSI).String()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		if _, own := v.Interface().(json.Marshaler); own {
			return v.Interface()
		}
		if v.CanAddr() {
			if _, own := v.Addr().Interface().(json.Marshaler); own {
				return v.Addr().Interface()
			}
		}
		fields := map[string]any{}
		plainFields(v, fields)
		return fields
	case reflect.Map:
		entries := map[string]any{}
		for _, key := range v.MapKeys() {
			entries[fmt.Sprint(key.Interface())] = plain(v.MapIndex(key))
		}
		return entries
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Interface()
		}
		items := make([]any, 0, v.Len())
		for i := range v.Len() {
			items = append(items, plain(v.Index(i)))
		}
		return items
	default:
		return v.Interface()
	}
}

// plainFields adds the fields of a struct that are set: non-nil pointers, and everything else that is not empty.
func plainFields(v reflect.Value, fields map[string]any) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" && (field.Anonymous || strings.Contains(options, "inline")) {
			if field.Type.Kind() == reflect.Struct {
				plainFields(v.Field(i), fields)
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		value := v.Field(i)
		if empty(value) {
			continue
		}
		said := plain(value)
		if inner, is := said.(map[string]any); is && len(inner) == 0 && value.Kind() == reflect.Struct {
			continue
		}
		fields[name] = said
	}
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}
