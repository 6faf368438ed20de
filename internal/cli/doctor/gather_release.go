package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	authzv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/charts"
)

// definitions compares those of the cluster with those that this binary was built with.
func (c *clusterGatherer) definitions(ctx context.Context) {
	files, err := charts.CRDs()
	if !c.could("its definitions", err) {
		return
	}
	resource := c.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, file := range files {
		wanted := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(file.Content, &wanted.Object); !c.could("the definition in "+file.Name, err) {
			continue
		}
		found, err := resource.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			c.seen.Definitions = append(c.seen.Definitions, Definition{Name: wanted.GetName(), Missing: true})
			continue
		}
		if !c.could("the definition "+wanted.GetName(), err) {
			continue
		}
		needs, has := fieldsOf(wanted), fieldsOf(found)
		d := Definition{Name: wanted.GetName(), Lacks: without(needs, has), Extra: without(has, needs)}
		if len(d.Lacks)+len(d.Extra) > 0 {
			c.seen.Definitions = append(c.seen.Definitions, d)
		}
	}
}

// without are those of a that are not in b, ordered.
func without(a, b map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a)), func(name string) bool { return b[name] })
}

// fieldsOf are the paths of a definition's fields, in the version that this binary speaks.
func fieldsOf(definition *unstructured.Unstructured) map[string]bool {
	fields := map[string]bool{}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, version := range versions {
		version, _ := version.(map[string]any)
		if name, _, _ := unstructured.NestedString(version, "name"); name != v1alpha1.GroupVersion.Version {
			continue
		}
		top, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		walk(top, "", fields)
	}
	return fields
}

func walk(node map[string]any, path string, fields map[string]bool) {
	properties, _, _ := unstructured.NestedMap(node, "properties")
	for name, child := range properties {
		at := name
		if path != "" {
			at = path + "." + name
		}
		fields[at] = true
		if child, ok := child.(map[string]any); ok {
			walk(child, at, fields)
		}
	}
	for _, inner := range []string{"items", "additionalProperties"} {
		if child, ok := node[inner].(map[string]any); ok {
			walk(child, path, fields)
		}
	}
}

// rights asks the cluster for each right that the chart grants its ServiceAccounts. Roles are not compared: a right that comes
// from elsewhere is one, too.
func (c *clusterGatherer) rights(ctx context.Context) {
	const what = "the rights of the server and the controller"
	granted, err := chartRights(c.in)
	if !c.could(what, err) {
		return
	}
	var lacking []Right
	for _, right := range granted {
		review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
			User: right.Principal, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.in.SystemNamespace, "system:authenticated"},
			ResourceAttributes: &authzv1.ResourceAttributes{
				Namespace: right.Namespace, Verb: right.Verb, Group: right.Group, Resource: right.Resource, Subresource: right.Subresource, Name: right.ObjectName,
			},
		}}, metav1.CreateOptions{})
		if !c.could(what, err) {
			return
		}
		if !review.Status.Allowed {
			lacking = append(lacking, right)
		}
	}
	c.seen.Lacking = lacking
}

// optional is the part of the roles that an installation may do without: runners that register themselves.
const optional = "bullpen-self-registering"

// chartRights are those that the chart grants the ServiceAccounts of a release named bullpen, optional ones aside.
func chartRights(in Installation) ([]Right, error) {
	objects, err := shippedRoles()
	if err != nil {
		return nil, err
	}
	where := map[string]string{"bullpen-system": in.SystemNamespace, "bullpen-runners": in.RunnerNamespace}
	rules := map[string][]rbacv1.PolicyRule{} // by kind, namespace and name of the role
	var bindings []*rbacv1.RoleBinding
	for _, object := range objects {
		switch object.GetKind() {
		case "Role", "ClusterRole": // both have the same rules
			role := &rbacv1.Role{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
				return nil, fmt.Errorf("reading the chart's roles: %w", err)
			}
			rules[object.GetKind()+"/"+role.Namespace+"/"+role.Name] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			binding := &rbacv1.RoleBinding{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
				return nil, fmt.Errorf("reading the chart's bindings: %w", err)
			}
			bindings = append(bindings, binding)
		}
	}
	var rights []Right
	for _, binding := range bindings {
		if binding.Name == optional {
			continue
		}
		namespace := binding.Namespace
		if binding.RoleRef.Kind == "ClusterRole" {
			namespace = ""
		}
		for _, subject := range binding.Subjects {
			principal := "system:serviceaccount:" + where[subject.Namespace] + ":" + subject.Name
			rights = append(rights, spread(principal, where[binding.Namespace], rules[binding.RoleRef.Kind+"/"+namespace+"/"+binding.RoleRef.Name])...)
		}
	}
	return rights, nil
}

// shippedRoles reads what the chart renders to.
func shippedRoles() ([]*unstructured.Unstructured, error) {
	files, err := charts.Rendered()
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(file.Content), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading the embedded manifest %s: %w", file.Name, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// spread gives each right of rules by itself.
func spread(principal, namespace string, rules []rbacv1.PolicyRule) []Right {
	var rights []Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				base, sub, _ := strings.Cut(resource, "/")
				for _, name := range names {
					for _, verb := range rule.Verbs {
						rights = append(rights, Right{
							Principal: principal, Namespace: namespace, Verb: verb, Group: group, Resource: base, Subresource: sub, ObjectName: name,
						})
					}
				}
			}
		}
	}
	return rights
}
