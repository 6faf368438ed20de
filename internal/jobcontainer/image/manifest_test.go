package image

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

var (
	amd64 = Platform{OS: "linux", Architecture: "amd64"}
	arm64 = Platform{OS: "linux", Architecture: "arm64"}
)

func TestPlatform_Suits(t *testing.T) {
	for _, test := range []struct {
		variant, wanted Platform
		suits           bool
	}{
		{amd64, amd64, true},
		{Platform{"linux", "x86_64", ""}, amd64, true},
		{Platform{"Linux", "AMD64", "v1"}, amd64, true},
		{Platform{"linux", "amd64", "v3"}, amd64, false},
		{Platform{"linux", "amd64", "v2"}, Platform{"linux", "amd64", "v3"}, true},
		{Platform{"linux", "arm64", "v8"}, arm64, true},
		{Platform{"linux", "aarch64", "8"}, arm64, true},
		{Platform{"linux", "arm", "v7"}, arm64, false},
		{Platform{"linux", "arm", ""}, Platform{"linux", "arm", "v7"}, true},
		{Platform{"linux", "arm", "v6"}, Platform{"linux", "arm", "v7"}, true},
		{Platform{"linux", "arm", "v7"}, Platform{"linux", "arm", "v6"}, false},
		{Platform{"linux", "arm", "v!"}, Platform{"linux", "arm", "vz"}, false},
		{Platform{"windows", "amd64", ""}, amd64, false},
		{Platform{"linux", "", ""}, amd64, false},
		{Platform{}, amd64, false},
	} {
		require.Equal(t, test.suits, test.variant.suits(test.wanted) > 0, "%s on %s", test.variant, test.wanted)
	}
	require.Equal(t, "linux/arm/v7", Platform{"linux", "arm", "v7"}.String())
	require.Equal(t, "linux/unknown", Platform{OS: "linux"}.String())
}

func entryOf(platform, mediaType string, n int) string {
	parts := append(strings.Split(platform, "/"), "", "")
	return fmt.Sprintf(`{"mediaType":%q,"digest":"sha256:%064d","size":10,"platform":{"os":%q,"architecture":%q,"variant":%q}}`, mediaType, n, parts[0], parts[1], parts[2])
}

func TestManifest_ChoosesTheBestVariant(t *testing.T) {
	index := func(entries ...string) manifest {
		m, err := parseManifest([]byte(`{"schemaVersion":2,"manifests":[`+strings.Join(entries, ",")+`]}`), ociIndex)
		require.NoError(t, err)
		return m
	}
	m := index(entryOf("unknown/unknown", ociManifest, 1), entryOf("linux/arm/v6", ociManifest, 2), entryOf("linux/arm/v7", dockerManifest, 3),
		entryOf("linux/arm64/v8", ociManifest, 4), entryOf("linux/arm64", "application/vnd.oci.image.index.v1+json", 5))
	for wanted, want := range map[Platform]int{{"linux", "arm", "v7"}: 3, {"linux", "arm", "v6"}: 2, arm64: 4} {
		got, err := m.choose(wanted)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("sha256:%064d", want), got.Digest, wanted)
	}
	_, err := m.choose(amd64)
	require.ErrorIs(t, err, errNoVariant)
	require.Equal(t, []string{"linux/arm/v6", "linux/arm/v7", "linux/arm64"}, m.variants())

	withoutPlatform := fmt.Sprintf(`{"mediaType":%q,"digest":"sha256:%064d","size":10}`, ociManifest, 9)
	got, err := index(withoutPlatform, entryOf("linux/amd64", ociManifest, 1)).choose(amd64)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("sha256:%064d", 1), got.Digest)
	got, err = index(withoutPlatform).choose(amd64)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("sha256:%064d", 9), got.Digest, "the config then says what it is for")

	var many []string
	for i := range 40 {
		many = append(many, entryOf(fmt.Sprintf("linux/a%02d", i), ociManifest, i))
	}
	require.Len(t, index(many...).variants(), 13, "a sentence is not longer than a line or two")
}

func TestParseManifest_RefusesWhatIsNoImage(t *testing.T) {
	config := fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":3}`, ociConfig, someDigest)
	m, err := parseManifest([]byte(`{"schemaVersion":2,"config":`+config+`,"layers":[]}`), ociManifest+"; charset=utf-8")
	require.NoError(t, err)
	require.Equal(t, someDigest, m.config.Digest)
	_, err = parseManifest([]byte(`{"schemaVersion":2,"config":`+config+`,"layers":[]}`), "text/plain")
	require.NoError(t, err, "registries that do not know the type still have the image")

	for body, want := range map[string]string{
		`{`:    "not valid JSON",
		`[]`:   "not valid JSON",
		`{}`:   "has no config",
		`null`: "has no config",
		`{"config":` + config + `,"layers":[],"manifests":[]}`:                                                       "is an index as well",
		`{"layers":[],"manifests":[]}`:                                                                               "is an index as well",
		`{"mediaType":"` + ociIndex + `","config":` + config + `}`:                                                   "media type of another kind",
		`{"mediaType":"` + ociManifest + `","manifests":[]}`:                                                         "media type of another kind",
		`{"fsLayers":[],"history":[]}`:                                                                               "version 1 of Docker's format",
		`{"config":{"mediaType":"` + ociConfig + `","digest":"sha256:1","size":1}}`:                                  "digest that is not valid",
		`{"config":{"mediaType":"` + ociConfig + `","digest":"` + someDigest + `","size":-1}}`:                       "larger than",
		`{"config":{"mediaType":"` + ociConfig + `","digest":"` + someDigest + `","size":1e9}}`:                      "not valid JSON",
		`{"config":{"mediaType":"` + ociConfig + `","digest":"` + someDigest + `","size":9999999}}`:                  "larger than",
		`{"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json","digest":"` + someDigest + `","size":1}}`: "it is an artifact of the type application/vnd.cncf.helm.config.v1+json",
		`{"config":` + config + `,"layers":{}}`:                                                                      "its layers are not valid",
		`{"config":` + config + `,"layers":[{"digest":"sha256:1"}]}`:                                                 "digest that is not valid",
		`{"config":` + config + `,"layers":[{"digest":"` + someDigest + `","urls":["http://169.254.169.254/"]}]}`:    "a layer of it is outside of its registry",
		`{"config":{"mediaType":"x\n::error::","digest":"` + someDigest + `","size":1}}`:                             "it is an artifact of the type x?::error::",
	} {
		_, err := parseManifest([]byte(body), "")
		var problem *notImage
		require.ErrorAs(t, err, &problem, body)
		require.Contains(t, problem.why, want, body)
	}
	_, err = parseManifest([]byte(`{"config":`+config+`}`), ociIndex)
	require.Error(t, err, "the response's type is of another kind")
	_, err = parseManifest([]byte(`{}`), dockerSigned1)
	require.ErrorContains(t, err, "version 1 of Docker's format")
}

func TestParseConfig(t *testing.T) {
	config, platform, err := parseConfig([]byte(`{"os":"linux","architecture":"aarch64","variant":"v8","config":{
		"Entrypoint":["docker-entrypoint.sh"],"Cmd":["postgres"],"Env":["PATH=/bin","EMPTY=","NONAME","=x","A=b=c"],"User":"postgres","WorkingDir":"/data",
		"StopSignal":"SIGINT","ExposedPorts":{"5432/tcp":{},"53/udp":{},"80":{},"80/TCP":{},"8000-8010/tcp":{},"x":{},"70000/tcp":{},"0":{}},
		"Volumes":{"/var/lib/b/":{},"/var/lib/a":{},"relative":{},"/":{},"/x/../var/lib/a":{}},
		"Healthcheck":{"Test":["CMD-SHELL","pg_isready"],"Interval":5000000000,"Timeout":-1,"StartInterval":1000000000,"Retries":7},
		"Labels":{"a":"b"},"OnBuild":["x"]},"history":[{"created_by":"x"}],"rootfs":{"type":"layers","diff_ids":[]}}`))
	require.NoError(t, err)
	require.Equal(t, arm64, platform)
	require.Equal(t, jobcontainer.ImageConfig{
		OS: "linux", Architecture: "arm64", Entrypoint: []string{"docker-entrypoint.sh"}, Cmd: []string{"postgres"}, Env: []string{"PATH=/bin", "EMPTY=", "A=b=c"},
		User: "postgres", WorkingDir: "/data", StopSignal: "SIGINT", ExposedPorts: []string{"53/udp", "80/tcp", "5432/tcp"},
		Volumes:     []string{"/var/lib/a", "/var/lib/b"},
		Healthcheck: &jobcontainer.Healthcheck{Test: []string{"CMD-SHELL", "pg_isready"}, Interval: 5 * time.Second, StartInterval: time.Second, Retries: 7},
	}, config)

	config, _, err = parseConfig([]byte(`{"os":"linux","architecture":"amd64","config":{"Healthcheck":{"Test":[]}}}`))
	require.NoError(t, err)
	require.Nil(t, config.Healthcheck)
}

func TestParseConfig_Refuses(t *testing.T) {
	long := strings.Repeat("x", maxConfig)
	for body, want := range map[string]string{
		`{`:                                     "its config is not valid",
		`{"config":{"Cmd":"not a list"}}`:       "its config is not valid",
		`{"config":{"Cmd":["a\u0000b"]}}`:       "a text with a zero byte",
		`{"config":{"User":"a\u0000"}}`:         "a text with a zero byte",
		`{"config":{"Env":["A=` + long + `"]}}`: "have more than 131072 bytes",
		`{"config":{"Cmd":[""` + strings.Repeat(`,""`, maxTexts) + `]}}`: "are more than 16384",
	} {
		_, _, err := parseConfig([]byte(body))
		var problem *notImage
		require.ErrorAs(t, err, &problem)
		require.Contains(t, problem.why, want)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"manifests":[`+entryOf("linux/arm/v6", ociManifest, 2)+`]}`), ociIndex)
	f.Add([]byte(`{"config":{"mediaType":"`+ociConfig+`","digest":"`+someDigest+`","size":3},"layers":[]}`), "")
	f.Add([]byte(`{"manifests":[null,{"platform":null}]}`), "")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		m, err := parseManifest(body, contentType)
		if err != nil {
			var problem *notImage
			require.ErrorAs(t, err, &problem)
			require.NotContains(t, problem.why, "\n")
			return
		}
		require.LessOrEqual(t, len(m.variants()), 13)
		if m.config != nil {
			require.NoError(t, m.config.check())
			return
		}
		for _, wanted := range []Platform{amd64, arm64, {"linux", "arm", "v7"}} {
			if d, err := m.choose(wanted); err == nil {
				require.NoError(t, d.check())
				require.True(t, d.Platform == nil || d.platform().suits(wanted) > 0)
			}
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"os":"linux","architecture":"amd64","config":{"Env":["A=b"],"ExposedPorts":{"80/tcp":{}},"Volumes":{"/x":{}},"Healthcheck":{"Test":["NONE"]}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		config, _, err := parseConfig(body)
		if err != nil {
			return
		}
		text, err := json.Marshal(config)
		require.NoError(t, err)
		require.Less(t, len(text), 8*maxConfig)
		require.NotContains(t, string(text), `\u0000`)
		for _, port := range config.ExposedPorts {
			require.Regexp(t, `^[0-9]+/(tcp|udp|sctp)$`, port)
		}
	})
}
