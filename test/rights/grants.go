package rights

import (
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// all is the word that roles have for everything.
const all = "*"

// Right is one thing that one user may do: one verb on one resource, or on one path of the API server that is no resource.
type Right struct {
	// User as the API server names it: system:serviceaccount:NAMESPACE:NAME for a ServiceAccount.
	User string
	Verb string
	// Group is empty for the core group; Resource may hold a subresource ("pods/status").
	Group, Resource string
	// Namespace limits the right to one; empty: everywhere, and what belongs to no namespace.
	Namespace string
	// Name limits it to the object of that name; empty: all.
	Name string
	// Path is set for paths that are no resource, and then Group, Resource, Namespace and Name are empty.
	Path string
}

// String is the right in a few words.
func (r Right) String() string {
	text := r.User + ": " + r.Verb + " "
	if r.Path != "" {
		return text + r.Path
	}
	text += r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " named " + r.Name
	}
	if r.Namespace != "" {
		return text + " in " + r.Namespace
	}
	return text + " everywhere"
}

// unlimited reports whether the right names not what it allows but all there is.
func (r Right) unlimited() bool {
	return strings.Contains(r.Verb+r.Group+r.Resource+r.Path, all)
}

// covers reports whether the right allows what another one allows.
func (r Right) covers(o Right) bool {
	if r.User != o.User || !matches(r.Verb, o.Verb) || (r.Path == "") != (o.Path == "") {
		return false
	}
	if r.Path != "" {
		return matchesPath(r.Path, o.Path)
	}
	return matches(r.Group, o.Group) && matchesResource(r.Resource, o.Resource) &&
		(r.Namespace == "" || r.Namespace == o.Namespace) && (r.Name == "" || r.Name == o.Name)
}

func matches(pattern, word string) bool { return pattern == all || pattern == word }

// matchesResource: "*" is every resource with every subresource, "*/status" the status of each, as the authorizer has it.
func matchesResource(pattern, resource string) bool {
	if matches(pattern, resource) {
		return true
	}
	_, subresource, has := strings.Cut(resource, "/")
	return has && pattern == all+"/"+subresource
}

func matchesPath(pattern, path string) bool {
	prefix, open := strings.CutSuffix(pattern, all)
	return pattern == path || open && strings.HasPrefix(path, prefix)
}

// Granted lists the rights that roles give to the subjects of bindings among the same objects; other objects are skipped.
// An unbound role gives none. A binding of a role that is not there, a binding to a group, and an aggregated role cannot be
// judged, and are errors.
func Granted(objects []*unstructured.Unstructured) ([]Right, error) {
	roles := map[roleKey][]rbacv1.PolicyRule{}
	var bindings []rbacv1.RoleBinding // a ClusterRoleBinding is one without a namespace
	var errs []error
	for _, object := range objects {
		if !strings.HasPrefix(object.GetAPIVersion(), rbacv1.GroupName+"/") {
			continue
		}
		switch object.GetKind() {
		case "Role", "ClusterRole":
			var role rbacv1.ClusterRole
			errs = append(errs, convert(object, &role))
			if role.AggregationRule != nil {
				errs = append(errs, fmt.Errorf("ClusterRole %s is put together from others: what it grants is not written in it", role.Name))
			}
			roles[roleKey{object.GetKind(), role.Namespace, role.Name}] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			var binding rbacv1.RoleBinding
			errs = append(errs, convert(object, &binding))
			bindings = append(bindings, binding)
		}
	}
	var rights []Right
	for _, binding := range bindings {
		key := roleKey{kind: binding.RoleRef.Kind, name: binding.RoleRef.Name}
		if key.kind == "Role" {
			key.namespace = binding.Namespace
		}
		rules, there := roles[key]
		if !there {
			errs = append(errs, fmt.Errorf("binding %s is of the %s %s, which is not there", binding.Name, key.kind, key.name))
		}
		for _, subject := range binding.Subjects {
			user, err := userOf(subject)
			errs = append(errs, err)
			for _, rule := range rules {
				rights = append(rights, expand(user, binding.Namespace, rule)...)
			}
		}
	}
	return rights, errors.Join(errs...)
}

type roleKey struct{ kind, namespace, name string }

func convert(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

func userOf(subject rbacv1.Subject) (string, error) {
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		return "system:serviceaccount:" + subject.Namespace + ":" + subject.Name, nil
	case rbacv1.UserKind:
		return subject.Name, nil
	default:
		return "", fmt.Errorf("a role is bound to the %s %s: who that is, no audit log says", subject.Kind, subject.Name)
	}
}

// expand makes of a rule one right for each of its verbs, groups, resources and names.
func expand(user, namespace string, rule rbacv1.PolicyRule) []Right {
	var rights []Right
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			if namespace == "" { // in a RoleBinding they have no effect
				rights = append(rights, Right{User: user, Verb: verb, Path: path})
			}
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					rights = append(rights, Right{User: user, Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name})
				}
			}
		}
	}
	return rights
}
