package machost_test

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
users:
- name: bootstrap
  user:
    token: abcdef.0123456789abcdef
`

// formsOf are the ways in which a secret could be said.
func formsOf(secrets machost.Secrets) map[string]string {
	forms := map[string]string{"token": "abcdef.0123456789abcdef", "token in base64": base64.StdEncoding.EncodeToString([]byte("abcdef.0123456789abcdef"))}
	for name, text := range map[string]string{"password": secrets.Password.Reveal(), "kubeconfig": secrets.BootstrapKubeconfig.Reveal()} {
		quoted, _ := json.Marshal(text)
		forms[name] = text
		forms[name+" in JSON"] = string(quoted)
		forms[name+" as Go quotes it"] = strconv.Quote(text)
		forms[name+" in base64"] = base64.StdEncoding.EncodeToString([]byte(text))
		forms[name+" in URL base64"] = base64.RawURLEncoding.EncodeToString([]byte(text))
		forms[name+" in hexadecimal"] = hex.EncodeToString([]byte(text))
		forms[name+" in a query"] = url.QueryEscape(text)
		forms[name+" in a path"] = url.PathEscape(text)
		forms[name+" quoted by a shell"] = "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	file, _ := autologin.Encode(secrets.Password.Reveal())
	forms["kcpassword"] = string(file)
	forms["kcpassword in base64"] = base64.StdEncoding.EncodeToString(file)
	forms["kcpassword in hexadecimal"] = hex.EncodeToString(file)
	return forms
}

func TestRedactor_HOST6_FindsSecretsInsideOfWhatWasEncoded(t *testing.T) {
	r := machost.NewRedactor(machost.Secrets{Password: machost.NewSecret("correct horse"), BootstrapKubeconfig: machost.NewSecret(kubeconfig)})
	for before := range 4 {
		for after := range 4 {
			text := strings.Repeat("x", before) + "correct horse" + strings.Repeat("y", after)
			encoded := base64.StdEncoding.EncodeToString([]byte(text))
			require.NotEqual(t, encoded, r.Text(encoded), "%d bytes before and %d after", before, after)
			require.Contains(t, r.Text(encoded), "[redacted]")
		}
	}
	require.Equal(t, "nothing in here", r.Text("nothing in here"))
	require.Equal(t, "", r.Text(""))
	require.Contains(t, r.Text("server https://10.0.0.1:6443"), "10.0.0.1", "what is no credential stays readable")
}

// A password of one letter is in every text: what is crossed out would spell it.
func TestRedactor_HOST6_AShortPasswordHidesEverything(t *testing.T) {
	r := machost.NewRedactor(machost.Secrets{Password: machost.NewSecret("e")})
	require.Equal(t, "[redacted]", r.Text("the file"))
	require.Equal(t, "[redacted]", r.Text("no"))
	event := r.Event(machost.Event{Step: "tart", Phase: machost.PhaseFailed, Changes: []string{"the file"}})
	require.Equal(t, "tart", event.Step)
	require.Equal(t, []string{"[redacted]"}, event.Changes)
}

// owner keeps a secret where fmt may call no methods.
type owner struct {
	secret  machost.Secret
	secrets machost.Secrets
}

func TestSecret_HOST6_DoesNotPrint(t *testing.T) {
	const text = "s3cr3t-9"
	s := machost.NewSecret(text)
	held := owner{s, machost.Secrets{Password: s, BootstrapKubeconfig: s}}
	payload := machost.Payload{Secrets: held.secrets}
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", "secret", s, "payload", payload, "held", held)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "payload", payload, "held", held)
	var said strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		fmt.Fprintf(&said, verb+"\n"+verb+"\n"+verb+"\n"+verb+"\n", s, &s, held, payload)
	}
	for _, value := range []any{s, payload, &payload, map[string]any{"s": s}} {
		asJSON, err := json.Marshal(value)
		require.NoError(t, err)
		asYAML, err := yaml.Marshal(value)
		require.NoError(t, err)
		said.Write(asJSON)
		said.Write(asYAML)
	}
	for _, out := range []string{said.String(), log.String()} {
		require.NotContains(t, out, text)
		require.NotContains(t, out, hex.EncodeToString([]byte(text)))
		require.Contains(t, out, "[redacted]")
	}
	require.Equal(t, text, s.Reveal())
	require.False(t, s.Empty())
	require.True(t, machost.NewSecret("").Empty())
	require.Empty(t, machost.Secret{}.Reveal())
}

func somePayload() machost.Payload {
	return machost.Payload{
		Config: machost.Config{
			User: "ci", Hostname: "mac-1", Egress: machost.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
			Node: machost.Node{Labels: map[string]string{"a": "b"}},
		},
		Secrets: machost.Secrets{Password: machost.NewSecret("p'\"<&>\\ö\n$(x)"), BootstrapKubeconfig: machost.NewSecret(kubeconfig)},
	}
}

func TestPayload_IsALineAndLeavesWhatFollows(t *testing.T) {
	line, err := machost.EncodePayload(somePayload())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(line), "\n"))
	r := bufio.NewReaderSize(strings.NewReader(string(line)+"confirm 1\n"), 16)
	got, err := machost.ReadPayload(r)
	require.NoError(t, err)
	require.Equal(t, somePayload(), got)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "confirm 1\n", string(rest))
}

func TestPayload_HOST6_BadOnesAreRefusedWithoutRepeatingThem(t *testing.T) {
	const secret = "s3cr3t-9"
	for name, text := range map[string]string{
		"an unknown field":        `{"config":{"user":"ci"},"secrets":{"s3cr3t-9":"x"}}`,
		"a field of the payload":  `{"config":{"user":"ci"},"s3cr3t-9":1}`,
		"another type":            `{"config":{"user":"ci"},"secrets":{"password":["s3cr3t-9"]}}`,
		"an unknown setting":      `{"config":{"user":"ci","colour":"red"},"secrets":{"password":"s3cr3t-9"}}`,
		"no JSON":                 `password: s3cr3t-9`,
		"cut off":                 `{"config":{"user":"ci"},"secrets":{"password":"s3cr3t-9"`,
		"two documents":           `{"config":{"user":"ci"},"secrets":{"password":"s3cr3t-9"}}{}`,
		"no config":               `{"secrets":{"password":"s3cr3t-9"}}`,
		"nothing":                 "",
		"more than there is room": `{"config":{"user":"` + strings.Repeat("x", 1<<20) + `"}}`,
	} {
		_, err := machost.ReadPayload(bufio.NewReader(strings.NewReader(text + "\n")))
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), secret, name)
	}
	_, err := machost.ReadPayload(bufio.NewReader(strings.NewReader("")))
	require.ErrorIs(t, err, io.EOF)
	_, err = machost.EncodePayload(machost.Payload{Secrets: machost.Secrets{Password: machost.NewSecret(strings.Repeat("x", 1<<20))}})
	require.Error(t, err)
}

func FuzzDecodePayload(f *testing.F) {
	line, err := machost.EncodePayload(somePayload())
	require.NoError(f, err)
	for _, seed := range []string{string(line), "", "{}", `{"config":{"egress":{"allow":["10.1.0.0"]}}}`, `{"config":null}`, `{"config":[]}`, `{"config":{"node":{"labels":null}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, err := machost.DecodePayload(data)
		if err != nil {
			return
		}
		_ = payload.Config.Validate()
		again, err := machost.EncodePayload(payload)
		if err != nil {
			return
		}
		back, err := machost.DecodePayload(again)
		require.NoError(t, err)
		require.Equal(t, payload.Config.DriftHash(""), back.Config.DriftHash(""))
		require.Equal(t, payload.Secrets.Password.Reveal(), back.Secrets.Password.Reveal())
	})
}
