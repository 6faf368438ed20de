package poolcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// definition is what an API server makes of the CustomResourceDefinition.
type definition struct {
	schema    *structural.Structural
	validator validation.SchemaValidator
	rules     *cel.Validator
}

// pools is the definition of RunnerPools. It comes with the binary.
var pools = sync.OnceValues(func() (*definition, error) {
	files, err := charts.CRDs()
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(file.Content, &crd); err != nil {
			return nil, fmt.Errorf("reading the embedded %s: %w", file.Name, err)
		}
		if crd.Spec.Names.Kind == v1alpha1.KindRunnerPool {
			return compile(crd)
		}
	}
	return nil, errors.New("the chart has no definition of RunnerPools")
})

func compile(crd apiextensionsv1.CustomResourceDefinition) (*definition, error) {
	for _, version := range crd.Spec.Versions {
		if version.Name != v1alpha1.GroupVersion.Version {
			continue
		}
		var properties apiextensions.JSONSchemaProps
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &properties, nil)
		if err != nil {
			return nil, fmt.Errorf("converting the definition %s: %w", crd.Name, err)
		}
		schema, err := structural.NewStructural(&properties)
		if err != nil {
			return nil, fmt.Errorf("compiling the definition %s: %w", crd.Name, err)
		}
		validator, _, err := validation.NewSchemaValidator(&properties)
		if err != nil {
			return nil, fmt.Errorf("compiling the definition %s: %w", crd.Name, err)
		}
		return &definition{schema, validator, cel.NewValidator(schema, true, celconfig.PerCallLimit)}, nil
	}
	return nil, fmt.Errorf("the definition %s has no version %s", crd.Name, v1alpha1.GroupVersion.Version)
}

// Check says what is wrong with a pool, a sentence for each problem; none: an API server accepts it. The pool is not changed.
func Check(ctx context.Context, pool *unstructured.Unstructured) ([]string, error) {
	d, err := pools()
	if err != nil {
		return nil, err
	}
	object, err := decoded(pool)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, path := range pruning.PruneWithOptions(object, d.schema, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		problems = append(problems, unknown(d.schema, path))
	}
	defaulting.Default(object, d.schema)
	found := apivalidation.ValidateObjectMetaAccessor(pool, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	found = append(found, validation.ValidateCustomResource(nil, object, d.validator)...)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, d.schema, object)...)
	if len(found) == 0 && d.rules != nil { // rules are written for objects that have the right types
		found, _ = d.rules.Validate(ctx, nil, d.schema, object, nil, celconfig.RuntimeCELCostBudget)
	}
	for _, problem := range found {
		problems = append(problems, sentence(problem))
	}
	return problems, nil
}

// decoded is a copy of a pool as an API server decodes it: whole numbers are integers.
func decoded(pool *unstructured.Unstructured) (map[string]any, error) {
	object := map[string]any{}
	text, err := json.Marshal(pool.Object)
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding pool %s: %w", pool.GetName(), err)
	}
	return object, nil
}

// sentence names the field first.
func sentence(problem *field.Error) string {
	switch problem.Type {
	case field.ErrorTypeRequired:
		return problem.Field + " is required"
	case field.ErrorTypeNotSupported, field.ErrorTypeTypeInvalid:
		return problem.Field + ": " + problem.ErrorBody()
	}
	if problem.Detail == "" {
		return problem.Field + ": " + problem.ErrorBody()
	}
	return problem.Field + ": " + problem.Detail
}

// unknown suggests fields of almost the same name.
func unknown(schema *structural.Structural, path string) string {
	text := "unknown field " + path
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		name, _, indexed := strings.Cut(step, "[")
		below, known := schema.Properties[name]
		if schema = &below; !known {
			return text
		}
		if indexed && schema.Items != nil {
			schema = schema.Items
		}
	}
	var names []string
	for name := range schema.Properties {
		names = append(names, name)
	}
	if near := commandline.Near(steps[len(steps)-1], names); len(near) > 0 {
		text += " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return text
}
