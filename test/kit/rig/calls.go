package rig

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Call is one kind of request, as a table of costs names it.
type Call struct {
	Component string // who calls
	Verb      string // as Kubernetes names it, or an HTTP method
	Resource  string // with its subresource: pods/status; or a path of the server
}

// The components.
const (
	Server     = "server"
	Controller = "controller"
	NodeAgent  = "node agent"
	Poller     = "poller"
	Runner     = "runner"
)

// refused ends the verb of a call that was not answered with success: a deletion, say, whose preconditions did not hold any
// more. It has changed nothing.
const refused = " (refused)"

// Write reports whether the call changes what the API server stores: what P5 counts. Events and Leases do not count, and
// nor do reviews and requests of tokens, which store nothing.
func (c Call) Write() bool {
	switch c.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !slices.Contains([]string{"events", "leases", "tokenreviews", "serviceaccounts/token"}, c.Resource)
	}
	return false
}

// Calls counts requests. It is safe for concurrent use.
type Calls struct {
	mu     sync.Mutex
	counts map[Call]int
}

// Count notes one call.
func (c *Calls) Count(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[Call]int{}
	}
	c.counts[call]++
}

// Snapshot returns the counts so far.
func (c *Calls) Snapshot() map[Call]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Sorted orders calls for a table: by component, resource and verb.
func Sorted[N int | float64](counts map[Call]N) []Call {
	return slices.SortedFunc(maps.Keys(counts), func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// kubernetes counts what a component asks of the API server.
func (c *Calls) kubernetes(component string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if verb, resource := parse(r); resource != "" {
				if err != nil || resp.StatusCode >= http.StatusBadRequest {
					verb += refused
				}
				c.Count(Call{component, verb, resource})
			}
			return resp, err
		})
	}
}

// parse reads verb and resource from a request of the API server; none from what is no request for objects.
func parse(r *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return "", "" // discovery, health
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource, named := parts[0], len(parts) > 1
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	switch r.Method {
	case http.MethodPost:
		return "create", resource
	case http.MethodPut:
		return "update", resource
	case http.MethodPatch:
		return "patch", resource
	case http.MethodDelete:
		if named {
			return "delete", resource
		}
		return "deletecollection", resource
	}
	switch {
	case r.URL.Query().Get("watch") != "":
		return "watch", resource
	case named:
		return "get", resource
	}
	return "list", resource
}
