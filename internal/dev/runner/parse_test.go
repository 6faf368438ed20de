package runner

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

func TestDecodeJIT(t *testing.T) {
	s := newService(t)
	c, err := DecodeJIT(s.jit() + "\n")
	require.NoError(t, err)
	require.Equal(t, int64(7), c.AgentID)
	require.Equal(t, "warm-1", c.AgentName)
	require.Equal(t, "_work", c.WorkFolder)
	require.True(t, c.Ephemeral)
	require.True(t, c.DisableUpdate)
	require.Equal(t, "client-7", c.clientID)
	require.True(t, c.key.Equal(s.key))
	require.Equal(t, "JIT config of runner warm-1", fmt.Sprintf("%+v", c), "no secret is printed")
}

func TestDecodeJIT_BadInputGetsASentence(t *testing.T) {
	s := newService(t)
	for part, change := range map[string]func(map[string]any){
		".runner is missing":                func(f map[string]any) { delete(f, ".runner") },
		".credentials is missing":           func(f map[string]any) { f[".credentials"] = []int{1} },
		".credentials_rsaparams is missing": func(f map[string]any) { f[".credentials_rsaparams"] = "x" },
		"V2 flow only":                      func(f map[string]any) { f[".runner"].(map[string]any)["UseV2Flow"] = false },
		"or ServerUrlV2 is not set":         func(f map[string]any) { f[".runner"].(map[string]any)["ServerUrlV2"] = "" },
		"ServerUrlV2 is no http":            func(f map[string]any) { f[".runner"].(map[string]any)["ServerUrlV2"] = "ftp://x" },
		"AgentName is empty":                func(f map[string]any) { f[".runner"].(map[string]any)["AgentName"] = map[string]any{} },
		"scheme is not OAuth":               func(f map[string]any) { f[".credentials"].(map[string]any)["Scheme"] = "Basic" },
		"hold no data":                      func(f map[string]any) { f[".credentials"].(map[string]any)["Data"] = 1 },
		"name no client":                    func(f map[string]any) { f[".credentials"].(map[string]any)["Data"] = map[string]any{} },
		"no usable exponent":                func(f map[string]any) { f[".credentials_rsaparams"].(map[string]any)["exponent"] = "!" },
		"RSA key is not valid":              func(f map[string]any) { f[".credentials_rsaparams"].(map[string]any)["p"] = number(big.NewInt(4)) },
	} {
		files := s.files()
		change(files)
		_, err := DecodeJIT(encodeJIT(files))
		require.ErrorIs(t, err, ErrBadJIT, part)
		require.ErrorContains(t, err, part)
	}
	for part, blob := range map[string]string{
		"not base64": "%", "JSON object of files": "aGVsbG8=", "one of its files": "eyJhIjoiJSJ9", "longer than": strings.Repeat("a", maxJIT+1),
	} {
		_, err := DecodeJIT(blob)
		require.ErrorIs(t, err, ErrBadJIT)
		require.ErrorContains(t, err, part)
	}
}

func FuzzDecodeJIT(f *testing.F) {
	s := newService(f)
	f.Add(s.jit())
	f.Add("")
	f.Add(encodeJIT(map[string]any{".runner": map[string]any{"UseV2Flow": true, "ServerUrlV2": "http://x", "AgentName": "a"}, ".credentials": nil, ".credentials_rsaparams": nil}))
	f.Add("eyIucnVubmVyIjoie30ifQ==")
	f.Fuzz(func(t *testing.T, blob string) {
		c, err := DecodeJIT(blob)
		if err != nil {
			require.ErrorIs(t, err, ErrBadJIT)
			return
		}
		require.NotNil(t, c.key)
		require.True(t, webURL(c.ServerURLV2))
	})
}

func TestParseVariables(t *testing.T) {
	for text, want := range map[string][]variable{
		"":                         nil,
		"a=1\n\nb=x=y\r\n":         {{"a", "1"}, {"b", "x=y"}},
		"a=":                       {{"a", ""}},
		"a<<E\nE\n":                {{"a", ""}},
		"a<<E\none\n\ntwo\nE\nb=2": {{"a", "one\n\ntwo"}, {"b", "2"}},
		"a<<E=F\nx\nE=F":           {{"a", "x"}},
		"a=b<<c":                   {{"a", "b<<c"}},
		"a<<EOF\r\nx\r\nEOF\r\n":   {{"a", "x\r"}},
	} {
		got, err := parseVariables(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"a", "=1", "<<E\nE", "a<<\n", "a<<E\nx"} {
		_, err := parseVariables(text)
		require.ErrorIs(t, err, errCommandFile, text)
	}
}

func FuzzParseVariables(f *testing.F) {
	for _, seed := range []string{"a=1\nb<<E\nx\nE\n", "a<<E", "=", "a<<b=c\nb=c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseVariables(text)
		if err != nil {
			require.ErrorIs(t, err, errCommandFile)
			return
		}
		for _, v := range list {
			require.NotEmpty(t, v.name)
			require.Contains(t, text, v.name)
		}
	})
}

func TestParseCommand(t *testing.T) {
	c, ok := parseCommand("  ::Error file=a%2Cb.go,line=1,endLine=2::x%250A%0Ay")
	require.True(t, ok)
	require.Equal(t, command{"error", map[string]string{"file": "a,b.go", "line": "1", "endline": "2"}, "x%0A\ny"}, c)
	require.Equal(t, annotation{Level: "FAILURE", Message: "x%0A\ny", Path: "a,b.go", StartLine: 1, EndLine: 2}, c.annotation("FAILURE"))
	for _, line := range []string{"", "::", "::::", ":: ::x", "::a", "a ::error::x", "::  x::"} {
		_, ok := parseCommand(line)
		require.False(t, ok, line)
	}
}

func TestDotnetDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"00:05:00": 5 * time.Minute, "01:00:00.5": time.Hour + 500*time.Millisecond, "1.00:00:01": 24*time.Hour + time.Second,
		"": time.Minute, "x": time.Minute, "00:-1:00": time.Minute, "9999.00:00:00": time.Minute, "1:2": time.Minute,
	} {
		require.Equal(t, want, dotnetDuration(text, time.Minute), text)
	}
}

func TestMasker(t *testing.T) {
	m := newMasker(&workflow.Message{
		Variables: map[string]workflow.Variable{"A": {Value: "abc", IsSecret: true}, "B": {Value: "abcdef\n\nsecond line\r\n", IsSecret: true}, "C": {Value: "plain"}},
		Mask:      []workflow.MaskHint{{Type: "regex", Value: `t0k-\d+`}, {Type: "regex", Value: "("}, {Type: "other", Value: "plain"}},
	})
	m.add("")
	require.Equal(t, "***|***|***|plain|***", m.mask("abcdef|abc|second line|plain|t0k-123"))
}

func TestLongLogs(t *testing.T) {
	x := run(t, `  a: {runs-on: x, steps: [{name: big, run: "head -c 300000 /dev/zero | tr '\\0' x; echo; seq 1 20000"}]}`)
	require.Equal(t, "succeeded", x.service.completed.Conclusion)
	log := x.service.stepLog("big")
	require.Equal(t, 1, strings.Count(log, "Z 20000\n"))
	require.Equal(t, 300000, strings.Count(log, "x")-strings.Count(x.service.job.Steps[0].Condition, "x")-2*strings.Count("head -c 300000 /dev/zero | tr '\\0' x; echo; seq 1 20000", "x"))
	require.Greater(t, x.service.blobs["/blob/StepLogsSignedBlobURL/"+x.service.stepID("big")].pieces, 1)
}
