package console

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// Claims say which claims of an ID token make a Kubernetes user, as kube-apiserver's --oidc-… flags do.
type Claims struct {
	Username       string // default sub
	UsernamePrefix string // default: the issuer and # in front of every claim but email; "-": none
	Groups         string // empty: there are none
	GroupsPrefix   string
	// Kept are the groups, with their prefix, that a session keeps; empty: all. A browser keeps few of them.
	Kept []string
}

// systems is the prefix of names that belong to Kubernetes itself: no identity provider assigns them.
const systems = "system:"

func (c Claims) check() error {
	for _, prefix := range []string{c.UsernamePrefix, c.GroupsPrefix} {
		if strings.HasPrefix(prefix, systems) {
			return fmt.Errorf("the prefix %q is reserved for Kubernetes: use another, such as oidc:", prefix)
		}
	}
	if c.Groups == "" && len(c.Kept) > 0 {
		return errors.New("groups to keep are set without a claim for groups: set it too (often groups)")
	}
	return nil
}

// unfitError: the provider knows them, and they have no name here.
type unfitError struct{ sentence string }

// Error is a sentence for them.
func (e *unfitError) Error() string { return e.sentence }

// user is who a checked ID token's claims are of. *unfitError.
func (c Claims) user(issuer string, claims map[string]any) (admin.User, error) {
	claim := c.Username
	if claim == "" {
		claim = "sub"
	}
	name, ok := claims[claim].(string)
	if !ok || name == "" {
		return admin.User{}, &unfitError{"Your ID token has no claim " + claim + ", which is used for your user name."}
	}
	if verified, says := claims["email_verified"]; claim == "email" && says && verified != true {
		return admin.User{}, &unfitError{"Your e-mail address is not verified at the identity provider, so it cannot be used as your user name."}
	}
	switch {
	case c.UsernamePrefix == "-":
	case c.UsernamePrefix != "":
		name = c.UsernamePrefix + name
	case claim != "email":
		name = issuer + "#" + name
	}
	if strings.HasPrefix(name, systems) {
		return admin.User{}, &unfitError{"Your name begins with " + systems + ", which is reserved for Kubernetes. An administrator can set a prefix for user names."}
	}
	groups, err := c.groups(claims)
	if err != nil {
		return admin.User{}, err
	}
	user := admin.User{Name: name, Groups: append(groups, "system:authenticated")}
	if subject, ok := claims["sub"].(string); ok { // a name may be reassigned to another person later; a subject is not
		user.Credential = "oidc:" + subject
	}
	return user, nil
}

// groups are those of the claim, which is a list or one. Kubernetes' own are excluded: an identity provider's administrator grants no
// system rights.
func (c Claims) groups(claims map[string]any) ([]string, error) {
	if c.Groups == "" {
		return nil, nil
	}
	var found []string
	switch claim := claims[c.Groups].(type) {
	case nil:
	case string:
		found = []string{claim}
	case []any:
		for _, one := range claim {
			name, ok := one.(string)
			if !ok {
				return nil, &unfitError{"The claim " + c.Groups + " of your ID token is not a list of names."}
			}
			found = append(found, name)
		}
	default:
		return nil, &unfitError{"The claim " + c.Groups + " of your ID token is not a list of names."}
	}
	var groups []string
	for _, name := range found {
		name = c.GroupsPrefix + name
		if name == "" || strings.HasPrefix(name, systems) || len(c.Kept) > 0 && !slices.Contains(c.Kept, name) {
			continue
		}
		groups = append(groups, name)
	}
	return groups, nil
}
