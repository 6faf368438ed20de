package github

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// People write down the address that they see in their browser, and the API's is another on each kind of GitHub.
func TestAPIAddress_R7_IsDerivedFromAnyAddressOfAGitHub(t *testing.T) {
	const own, server = "https://api.github.com", "https://ghes.example.com/api/v3"
	for given, wanted := range map[string]string{
		"":                                     own,
		"https://api.github.com":               own,
		"https://api.github.com/":              own,
		"https://api.github.com:443/":          own,
		"api.github.com":                       own,
		"github.com":                           own,
		"https://github.com":                   own,
		" https://github.com/ ":                own,
		"HTTPS://GitHub.com":                   own,
		"http://github.com":                    own,
		"http://github.com:80/":                own,
		"https://www.github.com":               own,
		"https://github.com/acme":              own,
		"https://github.com/acme/app/":         own,
		"https://github.com/enterprises/acme":  own,
		"https://github.com/api/v3":            own,
		"https://github.com.":                  own,
		"https://acme.ghe.com":                 "https://api.acme.ghe.com",
		"acme.ghe.com/":                        "https://api.acme.ghe.com",
		"http://Acme.GHE.com":                  "https://api.acme.ghe.com",
		"https://acme.ghe.com/org":             "https://api.acme.ghe.com",
		"https://acme.ghe.com/api/v3":          "https://api.acme.ghe.com",
		"https://api.acme.ghe.com":             "https://api.acme.ghe.com",
		"https://api.acme.ghe.com/":            "https://api.acme.ghe.com",
		"https://ghes.example.com":             server,
		"https://ghes.example.com/":            server,
		"https://ghes.example.com//":           server,
		"ghes.example.com":                     server,
		"https://GHES.example.com":             server,
		"https://ghes.example.com:443":         server,
		"https://ghes.example.com/api/v3":      server,
		"https://ghes.example.com/api/v3/":     server,
		"https://ghes.example.com/api/v3/meta": server,
		"https://ghes.example.com/api":         server,
		"https://ghes.example.com/api/graphql": server,
		"https://ghes.example.com/acme/app":    server,
		"https://ghes.example.com/api/v30":     server,
		"https://ghes.example.com:8443":        "https://ghes.example.com:8443/api/v3",
		"ghes.example.com:8443/api/v3":         "https://ghes.example.com:8443/api/v3",
		"http://ghes.example.com":              "http://ghes.example.com/api/v3",
		"http://ghes.example.com:443":          "http://ghes.example.com:443/api/v3",
		"http://127.0.0.1:38211":               "http://127.0.0.1:38211/api/v3",
		"http://localhost:80/api/v3/":          "http://localhost/api/v3",
		"https://10.1.2.3":                     "https://10.1.2.3/api/v3",
		"https://[fd00::1]:8443":               "https://[fd00::1]:8443/api/v3",
		"https://[fd00::1]":                    "https://[fd00::1]/api/v3",
		"https://gate.example.com/ghes/api/v3": "https://gate.example.com/ghes/api/v3",
		"https://notgithub.com":                "https://notgithub.com/api/v3",
		"https://github.com.example.com":       "https://github.com.example.com/api/v3",
		"https://notghe.com":                   "https://notghe.com/api/v3",
		"https://api.ghes.example.com":         "https://api.ghes.example.com",
	} {
		derived, err := APIAddress(given)
		require.NoError(t, err, given)
		require.Equal(t, wanted, derived, given)
		again, err := APIAddress(derived)
		require.NoError(t, err, given)
		require.Equal(t, derived, again, "an API's address stays as it is")
	}
}

func TestAPIAddress_R7_RefusesWhatIsNoAddressAndShowsNoPassword(t *testing.T) {
	for _, given := range []string{
		"ftp://github.com", "https://", "https:///api/v3", "://", "https://ada:s3cret@ghes.example.com", "https://s3cret@github.com", "https://ghes.example.com?token=s3cret",
		"https://ghes.example.com/#s3cret", "https://ghes.example.com:s3cret", "https://my host", "https://gist.github.com", "https://uploads.github.com",
		"https://ghe.com", "https://api.ghe.com", "https://%zz", "ssh://git@github.com/acme",
	} {
		_, err := APIAddress(given)
		require.ErrorIs(t, err, ErrAddress, given)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func FuzzAPIAddress(f *testing.F) {
	for _, seed := range []string{"github.com", "https://acme.ghe.com/x", "https://ghes.example.com:8443/api/v3/", "http://[::1]:80", "https://u:p@h", "https://h/%2Fapi/v3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		derived, err := APIAddress(given)
		if err != nil {
			require.ErrorIs(t, err, ErrAddress)
			return
		}
		at, err := url.Parse(derived)
		require.NoError(t, err, derived)
		require.NotEmpty(t, at.Hostname())
		require.Nil(t, at.User)
		require.False(t, strings.HasSuffix(derived, "/"), derived)
		again, err := APIAddress(derived)
		require.NoError(t, err, derived)
		require.Equal(t, derived, again)
	})
}
