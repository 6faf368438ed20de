package chart

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Two releases share no object under any names, and no name is too long.
func TestReleases_DoNotCollide(t *testing.T) {
	long := strings.Repeat("a-very-long-release-name.", 3)[:53]
	seen := map[string]string{}
	for _, release := range []helmchart.Release{
		{Name: "bullpen", Namespace: "bullpen-system"}, {Name: "bullpen", Namespace: "bullpen"}, {Name: "bullpen", Namespace: "team-a"},
		{Name: "team-a", Namespace: "bullpen-team-a"}, {Name: "bullpen-team", Namespace: "a"},
		{Name: long, Namespace: "b"}, {Name: long[:52] + "b", Namespace: "c"},
	} {
		mine := release.Name + " in " + release.Namespace
		release.Upgrade = true
		for _, object := range render(t, release, everything) {
			other, taken := seen[id(object)]
			require.False(t, taken, "%s is in %s and in %s", id(object), other, mine)
			seen[id(object)] = mine
			if object.GetNamespace() != "" || object.GetKind() == "Namespace" {
				require.Regexp(t, label, object.GetName())
			}
			require.LessOrEqual(t, len(object.GetName()), 253)
			for key, value := range object.GetLabels() {
				require.LessOrEqual(t, len(value), 63, "%s: %s", id(object), key)
			}
		}
	}
}

// NET-5, EXCL-7: policies and flags name the users that the ServiceAccounts are, in any release.
func TestReleases_PrincipalsAreThoseOfTheRelease(t *testing.T) {
	release := helmchart.Release{Name: "ci", Namespace: "team-a", Values: values(t, least)}
	manifests, err := helmchart.Render(release)
	require.NoError(t, err)
	var all strings.Builder
	for _, manifest := range manifests {
		all.WriteString(manifest.Content)
	}
	named := map[string]bool{}
	for _, user := range regexp.MustCompile(`system:serviceaccount:[-a-z0-9:]+`).FindAllString(all.String(), -1) {
		named[user] = true
	}
	require.Equal(t, []string{
		"system:serviceaccount:kube-system:generic-garbage-collector",
		"system:serviceaccount:team-a:ci-bullpen-controller", "system:serviceaccount:team-a:ci-bullpen-server",
	}, slices.Sorted(maps.Keys(named)))
	objects, err := helmchart.Objects(manifests)
	require.NoError(t, err)
	find(t, objects, "ServiceAccount team-a/ci-bullpen-controller")
	find(t, objects, "ServiceAccount team-a/ci-bullpen-server")
	require.Empty(t, regexp.MustCompile(`[^-](bullpen-system|bullpen-runners)`).FindAllString(all.String(), -1))
	for _, object := range objects {
		switch {
		case object.GetKind() == "ValidatingAdmissionPolicy" && object.GetName() == "ci-bullpen-authors.team-a":
			require.Equal(t, []any{"team-a", "team-a-bullpen-runners"}, at(t, object.Object, "spec", "matchConstraints", "namespaceSelector", "matchExpressions", 0, "values"))
		case object.GetKind() == "ValidatingAdmissionPolicy":
			require.Equal(t, "team-a-bullpen-runners", at(t, object.Object, "spec", "matchConstraints", "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name"), object.GetName())
		}
	}
}
