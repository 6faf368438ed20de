package chart

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// verdict is what the policy on authors says of a request by ada, by the API server's own evaluation of expressions.
type verdict struct {
	t       *testing.T
	matches celplugin.ConditionEvaluator
	allows  celplugin.ConditionEvaluator
}

func authorsPolicy(t *testing.T) verdict {
	t.Helper()
	var policy admissionv1.ValidatingAdmissionPolicy
	objects := render(t, helmchart.Release{}, least)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, objects, "ValidatingAdmissionPolicy /bullpen-authors"), &policy))
	compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	compile := func(expressions ...string) celplugin.ConditionEvaluator {
		var conditions []celplugin.ExpressionAccessor
		for _, expression := range expressions {
			conditions = append(conditions, &matchconditions.MatchCondition{Expression: expression})
		}
		compiled := compiler.CompileCondition(conditions, celplugin.OptionalVariableDeclarations{}, environment.NewExpressions)
		require.Empty(t, compiled.CompilationErrors())
		return compiled
	}
	require.Len(t, policy.Spec.MatchConditions, 1)
	require.Len(t, policy.Spec.Validations, 1)
	return verdict{t, compile(policy.Spec.MatchConditions[0].Expression), compile(policy.Spec.Validations[0].Expression)}
}

// of says whether the policy allows a request; an error of an expression denies it.
func (v verdict) of(object, old runtime.Object, kind schema.GroupVersionKind, resource, subresource string, operation admission.Operation) bool {
	v.t.Helper()
	gvr := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}
	if subresource != "" {
		gvr.Group, gvr.Version = "", "v1"
	}
	attributes := admission.NewAttributesRecord(object, old, kind, "n", "x", gvr, subresource, operation, nil, false, &user.DefaultInfo{Name: "ada"})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: object, VersionedOldObject: old}
	request := celplugin.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(gvr), metav1.GroupVersionKind(kind))
	evaluate := func(condition celplugin.ConditionEvaluator) bool {
		results, _, err := condition.ForInput(v.t.Context(), versioned, request, celplugin.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		require.NoError(v.t, err)
		require.NoError(v.t, results[0].Error)
		is, ok := results[0].EvalResult.Value().(bool)
		require.True(v.t, ok)
		return is
	}
	return !evaluate(v.matches) || evaluate(v.allows)
}

// NET-5: an audience of a token names the user who requests it, or none.
func TestAuthors_NET5_AudiencesNameTheUser(t *testing.T) {
	policy := authorsPolicy(t)
	for _, c := range []struct {
		audiences []string
		allowed   bool
	}{
		{[]string{"https://kubernetes.default.svc"}, true},
		{[]string{adminapi.Audience}, true},
		{[]string{}, true},
		{[]string{adminapi.Audience, adminapi.AudienceUser + "ada"}, true},
		{[]string{adminapi.Audience, adminapi.AudienceUser + "grace"}, false},
		{[]string{adminapi.AudienceUser + "ada", adminapi.AudienceUser + "grace"}, false},
		{[]string{adminapi.AudienceUser}, false},
		{[]string{adminapi.AudienceUser + "ada2"}, false},
	} {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: c.audiences}}
		kind := authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
		require.Equal(t, c.allowed, policy.of(request, nil, kind, "serviceaccounts", "token", admission.Create), "%v", c.audiences)
	}
}

// NET-5: the annotation of a pool names the user who writes it, for the generation that this change makes.
func TestAuthors_NET5_PoolsNameTheUser(t *testing.T) {
	policy := authorsPolicy(t)
	pool := func(generation int64, author string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.KindRunnerPool,
			"metadata": map[string]any{"name": "linux", "uid": "u", "generation": generation}, "spec": map[string]any{},
		}}
		if author != "" {
			object.SetAnnotations(map[string]string{v1alpha1.AnnotationChangedBy: author})
		}
		return object
	}
	for name, c := range map[string]struct {
		before, after *unstructured.Unstructured
		allowed       bool
	}{
		"no name":                           {pool(1, ""), pool(2, ""), true},
		"the user's":                        {pool(1, ""), pool(2, v1alpha1.ChangedBy("u", 2, "ada")), true},
		"instead of another":                {pool(1, v1alpha1.ChangedBy("u", 1, "grace")), pool(2, v1alpha1.ChangedBy("u", 2, "ada")), true},
		"an old one stays":                  {pool(1, v1alpha1.ChangedBy("u", 1, "grace")), pool(2, v1alpha1.ChangedBy("u", 1, "grace")), true},
		"an old one is removed":             {pool(1, v1alpha1.ChangedBy("u", 1, "grace")), pool(2, ""), true},
		"of another pool":                   {pool(1, ""), pool(2, v1alpha1.ChangedBy("v", 2, "grace")), true},
		"another user's":                    {pool(1, ""), pool(2, v1alpha1.ChangedBy("u", 2, "grace")), false},
		"for the next change":               {pool(1, ""), pool(1, v1alpha1.ChangedBy("u", 2, "ada")), false},
		"for the next change, in this one":  {pool(1, ""), pool(2, v1alpha1.ChangedBy("u", 3, "ada")), false},
		"for the change that was":           {pool(2, ""), pool(2, v1alpha1.ChangedBy("u", 2, "grace")), false},
		"a longer name":                     {pool(1, ""), pool(2, v1alpha1.ChangedBy("u", 2, "ada grace")), false},
		"no name, but the form":             {pool(1, ""), pool(2, v1alpha1.ChangedBy("u", 2, "")), false},
		"the user's, without other changes": {pool(2, ""), pool(2, v1alpha1.ChangedBy("u", 2, "ada")), true},
	} {
		kind := v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerPool)
		require.Equal(t, c.allowed, policy.of(c.after, c.before, kind, "runnerpools", "", admission.Update), name)
	}
}
