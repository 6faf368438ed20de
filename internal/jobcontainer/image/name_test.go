package image

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

const someDigest = "sha256:9f64a747e1b97f131fabb6b447296c9b6f0201e79fb3c5356e6c77e89b6a806a"

func TestParseName_SaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "Image '' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].",
		"Postgres":               "Image 'Postgres' is not a valid image name: a repository has lowercase letters only.",
		"Acme/app":               "Image 'Acme/app' is not a valid image name: a repository has lowercase letters only.",
		"a//b":                   "Image 'a//b' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].",
		"docker://postgres":      "Image 'docker://postgres' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].",
		"https://ghcr.io/a":      "Image 'https://ghcr.io/a' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].",
		"app@sha256:12":          "Image 'app@sha256:12' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest], or its digest is not sha256: and 64 hexadecimal digits.",
		"app\n::error::x":        "Image 'app?::error::x' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].",
		"\x1b[31m":               "Image '?[31m' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].",
		strings.Repeat("a", 300): "Image '" + strings.Repeat("a", 200) + "…' is not a valid image name: its repository is longer than 255 characters.",
		strings.Repeat("a", 700): "Image '" + strings.Repeat("a", 200) + "…' is not a valid image name: it is longer than any image name.",
		"[0]:0/app":              "Image '[0]:0/app' is not a valid image name: its registry is not a host, or host:port.",
		"registry:70000/app":     "Image 'registry:70000/app' is not a valid image name: its registry is not a host, or host:port.",
		"${{ env.IMAGE }}":       "Image '${{ env.IMAGE }}' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].",
	} {
		_, err := ParseName(text)
		var problem *Error
		require.ErrorAs(t, err, &problem, text)
		require.Equal(t, InvalidName, problem.Reason)
		require.Equal(t, want, problem.Error())
	}
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{"postgres", "ghcr.io/acme/app:1@" + someDigest, "a b", "[::1]:5000/x", "x\ny", "İ.io/x", "[0]:0/0", "Acme/app", "LOCALHOST/app"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseName(text)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "\x1b")
			return
		}
		require.NotEmpty(t, name.Registry)
		require.NotEmpty(t, name.Repository)
		require.NotEqual(t, name.Tag == "", name.Digest == "", "it has a tag or a digest")
		again, err := ParseName(name.String())
		require.NoError(t, err)
		require.Equal(t, name, again)
		require.True(t, imagename.Policy{}.Permits(name))
		_, err = newSession(newExchange(name, nil, imagename.Policy{}, &New(Options{}).options), name, nil)
		require.NoError(t, err, "what the kubelet can parse, the client can")
	})
}
