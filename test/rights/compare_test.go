package rights

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	server = "system:serviceaccount:system:server"
	other  = "system:serviceaccount:system:other"
)

func may(verb, resource string, change ...func(*Right)) Right {
	name, group, _ := strings.Cut(resource, ".")
	r := Right{User: server, Verb: verb, Group: group, Resource: name, Namespace: "runners"}
	for _, c := range change {
		c(&r)
	}
	return r
}

func everywhere(r *Right)         { r.Namespace = "" }
func named(n string) func(*Right) { return func(r *Right) { r.Name = n } }
func by(user string) func(*Right) { return func(r *Right) { r.User = user } }

func did(verb, resource string, change ...func(*Right)) Use {
	return Use{Right: may(verb, resource, change...), Code: 200}
}

func refused(u Use) Use {
	u.Code, u.Forbidden = 403, true
	return u
}

func except(r Right) []Exception {
	return []Exception{{User: r.User, Verbs: []string{r.Verb}, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, Why: "because"}}
}

func TestCompare_NET8(t *testing.T) {
	for name, c := range map[string]struct {
		granted    []Right
		uses       []Use
		exceptions []Exception
		also       []string
		want       []string
	}{
		"exactly what is used": {granted: []Right{may("get", "pods")}, uses: []Use{did("get", "pods", named("a"))}},
		"a verb too many": {
			granted: []Right{may("get", "pods"), may("delete", "pods")}, uses: []Use{did("get", "pods")},
			want: []string{"granted, and not used: " + server + ": delete pods in runners"},
		},
		"a verb too few": {
			granted: []Right{may("get", "pods")}, uses: []Use{did("get", "pods"), refused(did("delete", "pods", named("a")))},
			want: []string{"refused: " + server + ": delete pods named a in runners"},
		},
		"a refusal by an admission plug-in": {
			granted: []Right{may("delete", "pods")}, uses: []Use{did("delete", "pods"), {Right: may("delete", "pods"), Code: 403, Why: "it works"}},
			want: []string{"refused: " + server + ": delete pods in runners (it works)"},
		},
		"another error is a use":               {granted: []Right{may("get", "pods")}, uses: []Use{{Right: may("get", "pods"), Code: 404}}},
		"a watch that has no end yet is a use": {granted: []Right{may("watch", "pods")}, uses: []Use{{Right: may("watch", "pods")}}},
		"a refusal is no use": {
			granted: []Right{may("get", "pods")}, uses: []Use{refused(did("get", "pods"))},
			want: []string{"granted, and not used: " + server + ": get pods in runners", "refused: " + server + ": get pods in runners"},
		},
		"verbs are distinguished": {
			granted: []Right{may("list", "pods"), may("watch", "pods")}, uses: []Use{did("watch", "pods")},
			want: []string{"granted, and not used: " + server + ": list pods in runners"},
		},
		"a resource is not its subresource": {
			granted: []Right{may("patch", "pods"), may("patch", "pods/status")}, uses: []Use{did("patch", "pods/status")},
			want: []string{"granted, and not used: " + server + ": patch pods in runners"},
		},
		"groups are distinguished": {
			granted: []Right{may("create", "events"), may("create", "events.events.k8s.io")}, uses: []Use{did("create", "events.events.k8s.io")},
			want: []string{"granted, and not used: " + server + ": create events in runners"},
		},
		"users are distinguished": {
			granted: []Right{may("get", "pods"), may("get", "pods", by(other))}, uses: []Use{did("get", "pods")},
			want: []string{"granted, and not used: " + other + ": get pods in runners"},
		},
		"a name": {
			granted: []Right{may("get", "leases", named("a")), may("get", "leases", named("b"))}, uses: []Use{did("get", "leases", named("a"))},
			want: []string{"granted, and not used: " + server + ": get leases named b in runners"},
		},
		"another name than the role's": {
			granted: []Right{may("get", "leases", named("a"))}, uses: []Use{did("get", "leases", named("a")), did("get", "leases", named("b"))},
			want: []string{"allowed by something else: " + server + ": get leases named b in runners"},
		},
		"a list of one namespace needs no right to all": {
			granted: []Right{may("list", "pods", everywhere)}, uses: []Use{did("list", "pods", everywhere)},
		},
		"a list of all namespaces is not what a role in one allows": {
			granted: []Right{may("list", "pods")}, uses: []Use{did("list", "pods"), did("list", "pods", everywhere)},
			want: []string{"allowed by something else: " + server + ": list pods everywhere"},
		},
		"the rights of somebody else": {
			granted: []Right{may("get", "pods")}, uses: []Use{did("get", "pods"), did("create", "pods")},
			want: []string{"allowed by something else: " + server + ": create pods in runners"},
		},
		"the rights of all users": {
			granted: []Right{may("get", "pods")},
			uses: []Use{
				did("get", "pods"), did("create", "selfsubjectaccessreviews.authorization.k8s.io", everywhere),
				{Right: Right{User: server, Verb: "get", Path: "/apis/bullpen.dev"}, Code: 200},
			},
		},
		"a path": {
			granted: []Right{{User: server, Verb: "get", Path: "/metrics"}, {User: server, Verb: "get", Path: "/logs"}},
			uses:    []Use{{Right: Right{User: server, Verb: "get", Path: "/metrics"}, Code: 200}},
			want:    []string{"granted, and not used: " + server + ": get /logs"},
		},
		"all verbs": {
			granted: []Right{may("*", "pods")}, uses: []Use{did("get", "pods")},
			want: []string{"grants more than it names: " + server + ": * pods in runners"},
		},
		"all resources": {
			granted: []Right{may("get", "*.*")}, uses: []Use{did("get", "pods/status.apps")},
			want: []string{"grants more than it names: " + server + ": get *.* in runners"},
		},
		"the status of everything": {
			granted: []Right{may("patch", "*/status")}, uses: []Use{did("patch", "pods/status"), did("patch", "pods")},
			want: []string{"allowed by something else: " + server + ": patch pods in runners", "grants more than it names: " + server + ": patch */status in runners"},
		},
		"granted here and everywhere": {
			granted: []Right{may("get", "pods"), may("get", "pods", everywhere)}, uses: []Use{did("get", "pods")},
			want: []string{"granted twice: " + server + ": get pods in runners (by " + server + ": get pods everywhere)"},
		},
		"granted by two rules": {
			granted: []Right{may("get", "pods"), may("get", "pods")}, uses: []Use{did("get", "pods")},
			want: []string{"granted twice: " + server + ": get pods in runners (by " + server + ": get pods in runners)"},
		},
		"an exception": {granted: []Right{may("delete", "pods")}, exceptions: except(may("delete", "pods"))},
		"an exception for what is used": {
			granted: []Right{may("get", "pods")}, uses: []Use{did("get", "pods")}, exceptions: except(may("get", "pods")),
			want: []string{"an exception for what is used: " + server + ": get pods in runners (because)"},
		},
		"an exception for what is used at times": {
			granted: []Right{may("get", "pods"), may("list", "pods")}, uses: []Use{did("get", "pods")},
			exceptions: []Exception{{User: server, Verbs: []string{"get", "list"}, Resource: "pods", Namespace: "runners", Sometimes: true}},
		},
		"an exception for a right without a subject": {
			exceptions: except(may("get", "pods")),
			want:       []string{"an exception for what is not granted: " + server + ": get pods in runners (because)"},
		},
		"an exception of another namespace excuses nothing": {
			granted: []Right{may("get", "pods")}, exceptions: except(may("get", "pods", everywhere)),
			want: []string{
				"an exception for what is not granted: " + server + ": get pods everywhere (because)",
				"granted, and not used: " + server + ": get pods in runners",
			},
		},
		"others are not checked": {uses: []Use{did("get", "pods"), refused(did("get", "pods"))}},
		"unless they are named, for what they are refused": {
			uses: []Use{did("get", "pods", by("system:node:a")), refused(did("get", "nodes", by("system:node:a"))), refused(did("get", "pods"))}, also: []string{"system:node:*"},
			want: []string{"refused: system:node:a: get nodes in runners"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var found []string
			for _, f := range Compare(c.granted, c.uses, c.exceptions, c.also...) {
				found = append(found, f.String())
			}
			require.Equal(t, c.want, found)
		})
	}
}

func objectsOf(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(text, "---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
		objects = append(objects, object)
	}
	return objects
}

const bound = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ROLE, metadata: {name: r, namespace: runners}, rules: [RULE]}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: server, namespace: system}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: BINDING, metadata: {name: b, namespace: runners},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ROLE, name: r}, subjects: [{kind: ServiceAccount, name: server, namespace: system}]}
`

func TestGranted_NET8(t *testing.T) {
	rule := "{apiGroups: ['', x], resources: [a, a/s], verbs: [get], resourceNames: [one]}"
	text := strings.NewReplacer("RULE", rule, "ROLE", "Role", "BINDING", "RoleBinding").Replace(bound)
	rights, err := Granted(objectsOf(t, text))
	require.NoError(t, err)
	require.Equal(t, []Right{
		may("get", "a", named("one")), may("get", "a/s", named("one")), may("get", "a.x", named("one")), may("get", "a/s.x", named("one")),
	}, rights)

	everything := strings.ReplaceAll(text, ", namespace: runners}", "}")
	everything = strings.ReplaceAll(everything, "Role,", "ClusterRole,")
	inOne := strings.Replace(everything, "metadata: {name: b}", "metadata: {name: b, namespace: runners}", 1)
	rights, err = Granted(objectsOf(t, inOne))
	require.NoError(t, err)
	require.Equal(t, may("get", "a", named("one")), rights[0], "a ClusterRole that is bound in a namespace")
	rights, err = Granted(objectsOf(t, strings.ReplaceAll(everything, "RoleBinding", "ClusterRoleBinding")))
	require.NoError(t, err)
	require.Equal(t, may("get", "a", named("one"), everywhere), rights[0])
	paths := strings.ReplaceAll(strings.ReplaceAll(everything, "RoleBinding", "ClusterRoleBinding"), rule, "{nonResourceURLs: [/metrics], verbs: [get]}")
	rights, err = Granted(objectsOf(t, paths))
	require.NoError(t, err)
	require.Equal(t, []Right{{User: server, Verb: "get", Path: "/metrics"}}, rights)

	for name, change := range map[string][]string{
		"bound to a group":          {"subjects: [{kind: ServiceAccount", "subjects: [{kind: Group"},
		"a role that is not there":  {"name: r}, subjects", "name: q}, subjects"},
		"put together from others":  {"rules: [", "aggregationRule: {clusterRoleSelectors: [{}]}, rules: ["},
		"not of the kind it is of":  {"rules: [", "rules: x, y: ["},
		"another namespace's role ": {"kind: Role, metadata: {name: r, namespace: runners}", "kind: Role, metadata: {name: r, namespace: elsewhere}"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Granted(objectsOf(t, strings.Replace(text, change[0], change[1], 1)))
			require.Error(t, err)
		})
	}
}

const log = `{"verb":"create","user":{"username":"u"},"objectRef":{"resource":"pods","namespace":"n","name":"new"},"responseStatus":{"code":201}}
{"verb":"create","user":{"username":"u"},"objectRef":{"resource":"pods","subresource":"eviction","namespace":"n","name":"a"},"responseStatus":{"code":403,"message":"it works"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"list","user":{"username":"root"},"impersonatedUser":{"username":"u"},"objectRef":{"resource":"nodes","apiGroup":"g"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":"no role"}}
{"verb":"get","user":{"username":"u"},"requestURI":"/version?a=b","responseStatus":{"code":200}}
`

func TestReadLog_NET8(t *testing.T) {
	for _, half := range []string{"", `{"verb":"cre`} {
		uses, err := ReadLog(strings.NewReader(log + half))
		require.NoError(t, err)
		require.Equal(t, []Use{
			{Right: Right{User: "u", Verb: "create", Resource: "pods", Namespace: "n"}, Code: 201},
			{Right: Right{User: "u", Verb: "create", Resource: "pods/eviction", Namespace: "n", Name: "a"}, Code: 403, Why: "it works"},
			{Right: Right{User: "u", Verb: "list", Group: "g", Resource: "nodes"}, Code: 403, Forbidden: true, Why: "no role"},
			{Right: Right{User: "u", Verb: "get", Path: "/version"}, Code: 200},
		}, uses)
	}
	_, err := ReadLog(strings.NewReader("nonsense\n" + log))
	require.ErrorContains(t, err, "line 1")
}
