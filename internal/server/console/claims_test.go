package console

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Claims make the names that kube-apiserver would make of them with the flags of the same names.
func TestClaims_MakeKubernetesNames(t *testing.T) {
	const all = "system:authenticated"
	for name, c := range map[string]struct {
		claims Claims
		token  string
		user   string
		groups []string
		says   string // a refusal
	}{
		"the subject, by default":      {Claims{}, `{"sub":"1234"}`, "https://id.example.com#1234", []string{all}, ""},
		"the subject alone":            {Claims{UsernamePrefix: "-"}, `{"sub":"1234"}`, "1234", []string{all}, ""},
		"an address has no prefix":     {Claims{Username: "email"}, `{"sub":"1","email":"ada@example.com"}`, "ada@example.com", []string{all}, ""},
		"a verified address":           {Claims{Username: "email"}, `{"sub":"1","email":"ada@example.com","email_verified":true}`, "ada@example.com", []string{all}, ""},
		"an unverified address":        {Claims{Username: "email"}, `{"sub":"1","email":"ada@example.com","email_verified":false}`, "", nil, "not verified"},
		"verified by a word":           {Claims{Username: "email"}, `{"sub":"1","email":"ada@example.com","email_verified":"true"}`, "", nil, "not verified"},
		"unverified, and not the name": {Claims{UsernamePrefix: "-"}, `{"sub":"1","email_verified":false}`, "1", []string{all}, ""},
		"a prefix of ours":             {Claims{Username: "email", UsernamePrefix: "sso:"}, `{"sub":"1","email":"a@b.c"}`, "sso:a@b.c", []string{all}, ""},
		"no such claim":                {Claims{Username: "upn"}, `{"sub":"1"}`, "", nil, "no claim upn"},
		"an empty claim":               {Claims{Username: "upn"}, `{"sub":"1","upn":""}`, "", nil, "no claim upn"},
		"a claim that is no name":      {Claims{Username: "upn"}, `{"sub":"1","upn":7}`, "", nil, "no claim upn"},
		"a name of the system":         {Claims{UsernamePrefix: "-"}, `{"sub":"system:admin"}`, "", nil, "is reserved for Kubernetes"},
		"groups":                       {Claims{Groups: "groups"}, `{"sub":"1","groups":["a","b"]}`, "https://id.example.com#1", []string{"a", "b", all}, ""},
		"groups with a prefix":         {Claims{Groups: "groups", GroupsPrefix: "g:"}, `{"sub":"1","groups":["a"]}`, "https://id.example.com#1", []string{"g:a", all}, ""},
		"one group":                    {Claims{Groups: "role"}, `{"sub":"1","role":"a"}`, "https://id.example.com#1", []string{"a", all}, ""},
		"no groups":                    {Claims{Groups: "groups"}, `{"sub":"1"}`, "https://id.example.com#1", []string{all}, ""},
		"groups that nobody asks for":  {Claims{}, `{"sub":"1","groups":["a"]}`, "https://id.example.com#1", []string{all}, ""},
		"groups of the system":         {Claims{Groups: "groups"}, `{"sub":"1","groups":["system:masters","a",""]}`, "https://id.example.com#1", []string{"a", all}, ""},
		"groups that are none":         {Claims{Groups: "groups"}, `{"sub":"1","groups":{"a":1}}`, "", nil, "not a list of names"},
		"a group that is none":         {Claims{Groups: "groups"}, `{"sub":"1","groups":["a",7]}`, "", nil, "not a list of names"},
		"groups that are kept":         {Claims{Groups: "groups", GroupsPrefix: "g:", Kept: []string{"g:b"}}, `{"sub":"1","groups":["a","b"]}`, "https://id.example.com#1", []string{"g:b", all}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claims := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(c.token), &claims))
			user, err := c.claims.user("https://id.example.com", claims)
			if c.says != "" {
				var unfit *unfitError
				require.ErrorAs(t, err, &unfit)
				require.Contains(t, unfit.sentence, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.user, user.Name)
			require.Equal(t, c.groups, user.Groups)
			require.Equal(t, "oidc:"+claims["sub"].(string), user.Credential)
		})
	}
	for _, bad := range []Claims{{UsernamePrefix: "system:"}, {GroupsPrefix: "system:x"}, {Kept: []string{"a"}}} {
		require.Error(t, bad.check(), bad)
	}
}

// Whatever a provider signs, no user gets a name or group of Kubernetes itself, except the group of all authenticated users.
func FuzzClaims(f *testing.F) {
	f.Add(`{"sub":"1","email":"a@b.c","groups":["a","system:masters"]}`, "email", "", "")
	f.Add(`{"sub":"system:admin","groups":"system:masters"}`, "sub", "-", "sys")
	f.Fuzz(func(t *testing.T, token, claim, usernamePrefix, groupsPrefix string) {
		claims := map[string]any{}
		rules := Claims{Username: claim, UsernamePrefix: usernamePrefix, Groups: "groups", GroupsPrefix: groupsPrefix}
		if json.Unmarshal([]byte(token), &claims) != nil || rules.check() != nil {
			return
		}
		user, err := rules.user("https://id.example.com", claims)
		var unfit *unfitError
		if err != nil {
			require.True(t, errors.As(err, &unfit))
			return
		}
		require.NotEmpty(t, user.Name)
		require.False(t, strings.HasPrefix(user.Name, systems))
		for i, group := range user.Groups {
			require.Equal(t, i == len(user.Groups)-1, strings.HasPrefix(group, systems), user.Groups)
		}
	})
}
