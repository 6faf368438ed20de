package rights

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Exception are rights that a run does not use, and why they are granted nevertheless.
type Exception struct {
	User            string
	Verbs           []string
	Group, Resource string
	Namespace, Name string
	// Sometimes indicates that it depends on the order of things whether the run uses it; without, a use is a finding.
	Sometimes bool
	// Why it is needed, and the name of the Test that uses it or fails without it.
	Why, Test string
}

func (e Exception) rights() []Right {
	var rights []Right
	for _, verb := range e.Verbs {
		rights = append(rights, Right{User: e.User, Verb: verb, Group: e.Group, Resource: e.Resource, Namespace: e.Namespace, Name: e.Name})
	}
	return rights
}

// Kind of a finding.
type Kind string

// The kinds of findings.
const (
	// Unused: a right that the run did not use, and that no exception explains.
	Unused Kind = "granted, and not used"
	// Unlimited: a right to everything of a kind. It cannot be shown that all of it is used.
	Unlimited Kind = "grants more than it names"
	// Twice: a right that is another one's part, so that taking it away would change nothing.
	Twice Kind = "granted twice"
	// Refused: a request that the API server did not allow.
	Refused Kind = "refused"
	// Elsewhere: a request that was allowed, and not by these roles: it did not run under them.
	Elsewhere Kind = "allowed by something else"
	// Explained: an exception for a right that is used.
	Explained Kind = "an exception for what is used"
	// Stale: an exception for a right that is not granted.
	Stale Kind = "an exception for what is not granted"
)

// Finding is one difference between what is granted and what was used.
type Finding struct {
	Kind  Kind
	Right Right
	// Why is what the API server, or an exception, said.
	Why string
}

// String is the finding in a line.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s", f.Kind, f.Right)
	if f.Why != "" {
		text += " (" + f.Why + ")"
	}
	return text
}

// authenticated is what Kubernetes' own roles let every authenticated user do: discover resources, and ask about
// oneself.
var authenticated = []string{
	"selfsubjectaccessreviews.authorization.k8s.io", "selfsubjectrulesreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io",
	"/healthz", "/livez", "/readyz", "/version", "/version/", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*",
}

func forAuthenticated(u Use) bool {
	return slices.ContainsFunc(authenticated, func(what string) bool {
		if u.Path != "" {
			return matchesPath(what, u.Path)
		}
		return what == u.Resource+"."+u.Group
	})
}

// Compare says where what is granted and what was used differ, in an order that depends on the input alone; nothing means
// that each right was used or is excepted, and that no request was refused. It compares users that hold a right, and for
// refusals those that also names, too, by their names or, behind a prefix, with an asterisk.
func Compare(granted []Right, uses []Use, exceptions []Exception, also ...string) []Finding {
	holders := map[string]bool{}
	for _, right := range granted {
		holders[right.User] = true
	}
	found := map[Finding]bool{}
	used := make([]bool, len(granted))
	for _, use := range uses {
		named := holders[use.User] || slices.ContainsFunc(also, func(pattern string) bool { return matchesPath(pattern, use.User) })
		if use.Refused() {
			if named {
				found[Finding{Refused, use.Right, use.Why}] = true
			}
			continue
		}
		if !holders[use.User] {
			continue
		}
		covered := false
		for n, right := range granted {
			if right.covers(use.Right) {
				used[n], covered = true, true
			}
		}
		if !covered && !forAuthenticated(use) {
			found[Finding{Elsewhere, use.Right, use.Why}] = true
		}
	}
	judge(granted, used, exceptions, found)
	return sorted(found)
}

// judge compares the rights one by one, and the exceptions.
func judge(granted []Right, used []bool, exceptions []Exception, found map[Finding]bool) {
	excepted := map[Right]Exception{}
	for _, exception := range exceptions {
		for _, right := range exception.rights() {
			excepted[right] = exception
			if !slices.Contains(granted, right) {
				found[Finding{Stale, right, exception.Why}] = true
			}
		}
	}
	for n, right := range granted {
		exception, explained := excepted[right]
		switch {
		case right.unlimited():
			found[Finding{Unlimited, right, ""}] = true
		case used[n] && explained && !exception.Sometimes:
			found[Finding{Explained, right, exception.Why}] = true
		case !used[n] && !explained:
			found[Finding{Unused, right, ""}] = true
		}
		for m, other := range granted {
			if m != n && other.covers(right) && (m < n || other != right) {
				found[Finding{Twice, right, "by " + other.String()}] = true
			}
		}
	}
}

func sorted(found map[Finding]bool) []Finding {
	var list []Finding
	for finding := range found {
		list = append(list, finding)
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Right.String(), b.Right.String()), strings.Compare(a.Why, b.Why))
	})
	return list
}
