package remote

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

func parse(chunks ...string) (found []machost.Event, p *parser) {
	p = &parser{show: shower{machost.NewRedactor(secrets)}, event: func(e machost.Event) { found = append(found, e) }, stop: func(error) {}}
	for _, chunk := range chunks {
		_, _ = p.Write([]byte(chunk))
	}
	p.close()
	return found, p
}

var secrets = machost.Secrets{Password: machost.NewSecret("correct horse"), BootstrapKubeconfig: machost.NewSecret(kubeconfig)}

func TestParser_TakesLinesInAnyPieces(t *testing.T) {
	text := "Last login: today\n{\"phase\":\"Applied\",\"step\":\"dns\",\"changes\":[\"a\"]}\r\n\n{\"phase\":\"Later\",\"new\":{\"x\":1}}\n{\"phase\":\"Done\"}"
	want := []machost.Event{{Phase: "Applied", Step: "dns", Changes: []string{"a"}}, {Phase: "Later"}, {Phase: "Done"}}
	for size := 1; size < len(text); size++ {
		var chunks []string
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		found, p := parse(chunks...)
		require.Equal(t, want, found)
		require.Equal(t, "Last login: today", string(p.noise))
	}
}

func TestParser_SkipsWhatIsNoEvent(t *testing.T) {
	for _, line := range []string{`{}`, `{"phase":""}`, `{"phase":5}`, `{"phase":"Done"} x`, `["Done"]`, `{"phase":"Do\u001bne"}`, `{"phase":"Done","step":"a b"}`,
		`{"phase":"Done","step":"` + strings.Repeat("x", 200) + `"}`, strings.Repeat("x", 8*maxLine),
		`{"phase":"Done"}` + strings.Repeat(" ", maxLine) + "x", `{"phase":"Done","message":"` + strings.Repeat("x", maxLine) + `"}`} {
		found, p := parse(line+"\n", `{"phase":"Applied"}`+"\n")
		require.Equal(t, []machost.Event{{Phase: "Applied"}}, found, "%.50s", line)
		require.LessOrEqual(t, len(p.noise), maxNoise)
		require.LessOrEqual(t, cap(p.line), 2*maxLine)
	}
}

func TestParser_StopsAHostThatTellsWithoutEnd(t *testing.T) {
	var stopped error
	p := &parser{show: shower{machost.NewRedactor(secrets)}, event: func(machost.Event) {}, stop: func(err error) { stopped = err }}
	for range maxEvents {
		_, _ = p.Write([]byte("{\"phase\":\"Applied\"}\n"))
	}
	require.NoError(t, stopped)
	_, _ = p.Write([]byte("{\"phase\":\"Applied\"}\n"))
	require.ErrorIs(t, stopped, errTooManyEvents)
}

func TestParser_HOST6_NoSecretComesOutOfIt(t *testing.T) {
	for _, said := range []string{"correct horse", "corr\\u001bect horse", base64.StdEncoding.EncodeToString([]byte("correct horse"))} {
		found, _ := parse(fmt.Sprintf("{\"phase\":\"Failed\",\"message\":\"it is %s!\",\"file\":\"/%s\",\"remedy\":\"%s\",\"changes\":[\"%s\"]}\n", said, said, said, said))
		require.Len(t, found, 1)
		for _, text := range []string{found[0].Message, found[0].File, found[0].Remedy, found[0].Changes[0]} {
			require.Contains(t, text, "[redacted]")
			require.NotContains(t, text, "corr")
			require.NotContains(t, text, said[:len(said)-4])
		}
	}
}

func FuzzParser(f *testing.F) {
	f.Add([]byte("{\"phase\":\"Applied\",\"step\":\"dns\",\"changes\":[\"a\"]}\n{\"phase\":\"Done\",\"hash\":\"x\"}"), 3)
	f.Add([]byte("{\"phase\":\"Failed\",\"message\":\"correct\\u0007 horse\\u2028\",\"token\":\"a\\nb\"}\n"), 1)
	f.Add(bytes.Repeat([]byte("x"), maxLine+10), 1000)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(1, size)
		var chunks []string
		for rest := string(data); rest != ""; {
			n := min(size, len(rest))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		found, p := parse(chunks...)
		whole, _ := parse(string(data))
		require.Equal(t, whole, found, "the pieces matter")
		require.LessOrEqual(t, len(p.noise), maxNoise)
		for _, e := range found {
			require.NotEmpty(t, e.Phase)
			for _, text := range append([]string{string(e.Phase), e.Step, e.Message, e.File, e.Remedy, e.Hash, e.Token}, e.Changes...) {
				require.LessOrEqual(t, len(text), maxText+len("…"))
				require.NotContains(t, text, "correct horse")
				require.Equal(t, -1, strings.IndexFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }), "%q", text)
			}
		}
	})
}
