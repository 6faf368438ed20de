package imagename

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func permits(t *testing.T, pattern, image string) bool {
	t.Helper()
	policy, err := ParsePolicy([]string{pattern}, nil)
	require.NoError(t, err, pattern)
	name, err := Parse(image)
	require.NoError(t, err, image)
	return policy.Permits(name)
}

func TestPolicy_Patterns(t *testing.T) {
	for _, test := range []struct {
		pattern  string
		permits  []string
		prevents []string
	}{
		{"postgres", []string{"postgres", "postgres:16", "docker.io/library/postgres:17", "postgres@" + someDigest}, []string{"acme/postgres", "ghcr.io/library/postgres", "postgresql"}},
		{"postgres:16*", []string{"postgres:16", "postgres:16-alpine"}, []string{"postgres", "postgres:15", "postgres@" + someDigest, "postgres:16@" + someDigest}},
		{"acme/*", []string{"acme/app", "docker.io/acme/x:1"}, []string{"acme/app/sub", "library/acme", "acme"}},
		{"ghcr.io/acme/**", []string{"ghcr.io/acme/app", "ghcr.io/acme/a/b/c:1", "ghcr.io/acme/app@" + someDigest}, []string{"ghcr.io/acme", "ghcr.io/acmecorp/app", "ghcr.io.evil.com/acme/app", "evil.com/ghcr.io/acme/app"}},
		{"ghcr.io/**", []string{"ghcr.io/a", "ghcr.io/a/b/c"}, []string{"docker.io/a/b", "ghcr.io:444/a"}},
		{"*.example.com/**", []string{"a.example.com/x", "b.example.com/x/y"}, []string{"example.com/x", "a.b.example.com/x", "a.example.com:5000/x"}},
		{"registry.example.com:5000/*/base:v1.*", []string{"registry.example.com:5000/team/base:v1.2"}, []string{"registry.example.com/team/base:v1.2", "registry.example.com:5000/a/b/base:v1.2", "registry.example.com:5000/team/base:v2.0"}},
		{"**", []string{"postgres", "ghcr.io/a/b/c@" + someDigest, "localhost:5000/x"}, nil},
		{"*", []string{"postgres", "redis:7"}, []string{"acme/app", "ghcr.io/postgres"}},
		{"a*b*c", []string{"abc", "axbyc", "abbcc"}, []string{"ab", "ac", "xabc", "abcx"}},
		{"ghcr.io/acme/app@" + someDigest, []string{"ghcr.io/acme/app@" + someDigest, "ghcr.io/acme/app:1@" + someDigest}, []string{"ghcr.io/acme/app", "ghcr.io/acme/app:latest"}},
	} {
		for _, image := range test.permits {
			require.True(t, permits(t, test.pattern, image), "%s permits %s", test.pattern, image)
		}
		for _, image := range test.prevents {
			require.False(t, permits(t, test.pattern, image), "%s does not permit %s", test.pattern, image)
		}
	}
}

func TestPolicy_NoPatternsPermitEveryImage(t *testing.T) {
	policy, err := ParsePolicy(nil, []string{"registry.internal"})
	require.NoError(t, err)
	name, err := Parse("ghcr.io/acme/app")
	require.NoError(t, err)
	require.True(t, policy.Permits(name))
}

func TestPolicy_NamesRegistries(t *testing.T) {
	policy, err := ParsePolicy([]string{"Registry.Internal:5000/team/**", "*.wild.internal/**", "**", "postgres"}, []string{"auth.internal", "http://plain.internal:80", "[fd00::1]:5000"})
	require.NoError(t, err)
	for _, host := range []string{"registry.internal:5000", "REGISTRY.internal:5000", "auth.internal", "plain.internal:80", "docker.io", "[fd00::1]:5000"} {
		require.True(t, policy.Names(host), host)
	}
	for _, host := range []string{"registry.internal", "x.wild.internal", "", "internal", "auth.internal:8080"} {
		require.False(t, policy.Names(host), host)
	}
	require.True(t, policy.PermitsPlain("plain.internal:80"))
	require.False(t, policy.PermitsPlain("registry.internal:5000"))
	require.False(t, Policy{}.Names("registry.internal"))
}

func TestPolicy_ReachDiffersByNamedHosts(t *testing.T) {
	one, err := ParsePolicy([]string{"**"}, []string{"a.internal"})
	require.NoError(t, err)
	same, err := ParsePolicy([]string{"postgres:*", "a.internal/x"}, []string{"docker.io"})
	require.NoError(t, err)
	other, err := ParsePolicy(nil, []string{"http://a.internal"})
	require.NoError(t, err)
	require.NotEqual(t, one.Reach(), same.Reach())
	require.NotEqual(t, one.Reach(), other.Reach(), "with and without TLS")
	twin, err := ParsePolicy(nil, []string{"A.internal"})
	require.NoError(t, err)
	require.Equal(t, one.Reach(), twin.Reach())
}

func TestParsePolicy_SaysWhatIsWrong(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                    `image pattern "": it is not of the form [registry/]repository[:tag][@digest]`,
		"ghcr.io/**/app":      `image pattern "ghcr.io/**/app": "**" is allowed as the last part only`,
		"app:":                `image pattern "app:": nothing is after the colon`,
		"app@":                `image pattern "app@": nothing is after the @`,
		"app:1@" + someDigest: `image pattern "app:1@` + someDigest + `": it has a tag and a digest; a digest alone is enough`,
		"https://ghcr.io/a":   `image pattern "https://ghcr.io/a": a registry is host or host:port, without a scheme and a path`,
		"UPPER":               `image pattern "UPPER": it is not of the form [registry/]repository[:tag][@digest]`,
		"ghcr.io/**:latest":   `image pattern "ghcr.io/**:latest": a tag or a digest needs a repository`,
		"app@sha256:*":        `image pattern "app@sha256:*": it is not of the form [registry/]repository[:tag][@digest]`,
	} {
		_, err := ParsePolicy([]string{pattern}, nil)
		require.EqualError(t, err, want, pattern)
	}
	for registry, want := range map[string]string{
		"":                      `registry "": a registry is host or host:port, without a scheme and a path`,
		"https://x.io":          `registry "https://x.io": a registry is host or host:port, without a scheme and a path`,
		"x.io/path":             `registry "x.io/path": a registry is host or host:port, without a scheme and a path`,
		"x.io:http":             `registry "x.io:http": its port is not a number from 1 to 65535`,
		"x.io:70000":            `registry "x.io:70000": its port is not a number from 1 to 65535`,
		"*.x.io":                `registry "*.x.io": a registry is host or host:port, without a scheme and a path`,
		"-x.io":                 `registry "-x.io": a registry is host or host:port, without a scheme and a path`,
		"http://user@x.io:5000": `registry "http://user@x.io:5000": a registry is host or host:port, without a scheme and a path`,
	} {
		_, err := ParsePolicy(nil, []string{registry})
		require.EqualError(t, err, want, registry)
	}
}

func FuzzParsePolicy(f *testing.F) {
	for _, seed := range []string{"postgres:16*", "**", "ghcr.io/acme/**", "*.x.io/*", "a@" + someDigest, "[::1]:5000/**"} {
		f.Add(seed, "ghcr.io/acme/app:1")
	}
	f.Fuzz(func(t *testing.T, pattern, image string) {
		policy, err := ParsePolicy([]string{pattern}, []string{pattern})
		if err != nil {
			policy, err = ParsePolicy([]string{pattern}, nil)
		}
		if err != nil {
			return
		}
		require.Len(t, policy.patterns, 1)
		if name, err := Parse(image); err == nil {
			policy.Permits(name)
			policy.Names(name.Registry)
		}
		if name, err := Parse(pattern); err == nil && name.Tag != "latest" {
			require.True(t, policy.Permits(name), "a pattern without stars permits its own name")
		}
	})
}
