package workflow

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var testParams = MessageParams{
	PlanID: "11111111-1111-4111-8111-111111111111", TimelineID: "22222222-2222-4222-8222-222222222222",
	JobID: "33333333-3333-4333-8333-333333333333", RequestID: 7, ServiceURL: "http://run.example/x", ResultsURL: "http://results.example",
	AccessToken: "at+1", GitHubToken: "ghs_1", Secrets: map[string]string{"DEPLOY": "s3cret"},
}

func requireRoundTrip(t testing.TB, m *Message) {
	t.Helper()
	data, err := json.Marshal(m)
	require.NoError(t, err)
	back, err := ParseJobMessage(data)
	require.NoError(t, err)
	again, err := json.Marshal(back)
	require.NoError(t, err)
	require.JSONEq(t, string(data), string(again))
}

func fullMessage(t testing.TB) *Message {
	t.Helper()
	data, err := os.ReadFile("testdata/full.yml")
	require.NoError(t, err)
	wf, err := Load("full.yml", data)
	require.NoError(t, err)
	run, err := NewRun(wf, Event{Name: "push", GitHub: NewObject("ref", "refs/heads/main")})
	require.NoError(t, err)
	require.Len(t, run.Next(), 1)
	_, err = run.Complete("plan", Success, map[string]string{"list": "[1,2]"})
	require.NoError(t, err)
	m, err := JobMessage(run.Next()[0], testParams)
	require.NoError(t, err)
	return m
}

func TestJobMessage_HasTheProtocolsShape(t *testing.T) {
	m := fullMessage(t)
	requireRoundTrip(t, m)
	data, err := json.Marshal(m)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(data, &got))
	want := map[string]string{
		"messageType":    `"RunnerJobRequest"`,
		"jobDisplayName": `"Build (linux, 1)"`,
		"jobName":        `"Build"`,
		"environmentVariables": `[{"type":2,"map":[{"Key":"ZED","Value":"1"},{"Key":"ALPHA","Value":{"type":3,"expr":"github.ref"}}]},
			{"type":2,"map":[{"Key":"WHO","Value":{"type":3,"expr":"matrix.os"}}]}]`,
		"defaults": `[{"type":2,"map":[{"Key":"run","Value":{"type":2,"map":[{"Key":"shell","Value":"bash"}]}}]}]`,
		"steps": `[{"type":"action","reference":{"type":"script"},"id":"` + m.Steps[0].ID + `","name":"__run","contextName":"__run","condition":"success()",
			"inputs":{"type":2,"map":[{"Key":"script","Value":"echo one\necho two\n"}]}},
			{"type":"action","reference":{"type":"script"},"id":"` + m.Steps[1].ID + `","name":"s2","contextName":"s2","condition":"always()","displayNameToken":"Second",
			"continueOnError":true,"timeoutInMinutes":1,"environment":{"type":2,"map":[{"Key":"X","Value":"y"}]},
			"inputs":{"type":2,"map":[{"Key":"script","Value":"exit 1"},{"Key":"shell","Value":"sh"},{"Key":"workingDirectory","Value":"sub"}]}}]`,
		"resources": `{"endpoints":[{"name":"SystemVssConnection","url":"http://run.example/x/","isReady":true,"isShared":false,
			"authorization":{"scheme":"OAuth","parameters":{"AccessToken":"at+1"}},"data":{"ResultsServiceUrl":"http://results.example"}}]}`,
		"mask": `[{"type":"regex","value":"ghs_1"},{"type":"regex","value":"at\\+1"}]`,
	}
	for field, text := range want {
		part, err := json.Marshal(got[field])
		require.NoError(t, err)
		require.JSONEq(t, text, string(part), field)
	}
	contexts := got["contextData"].(map[string]any)
	matrix, _ := json.Marshal(contexts["matrix"])
	require.JSONEq(t, `{"t":2,"d":[{"k":"os","v":"linux"},{"k":"n","v":1},{"k":"flaky","v":true}]}`, string(matrix))
	needs, _ := json.Marshal(contexts["needs"])
	require.JSONEq(t, `{"t":2,"d":[{"k":"plan","v":{"t":2,"d":[{"k":"result","v":"success"},{"k":"outputs","v":{"t":2,"d":[{"k":"list","v":"[1,2]"}]}}]}}]}`, string(needs))
	require.Equal(t, Variable{"ghs_1", true}, m.Variables[VarToken])
	require.Equal(t, Variable{"s3cret", true}, m.Variables["DEPLOY"])
	require.Equal(t, "7.5", m.Variables[VarTimeout].Value)
	require.NotEqual(t, m.Steps[0].ID, m.Steps[1].ID)
}

func TestJobMessage_RefusesWhatIsNoJob(t *testing.T) {
	_, err := JobMessage(Job{Key: "a"}, testParams)
	require.ErrorContains(t, err, "Run.Next")
	p := testParams
	p.JobID = "x"
	_, err = JobMessage(Job{Key: "a"}, p)
	require.ErrorContains(t, err, "no GUID")
}

func TestContextData_ReadsBothForms(t *testing.T) {
	for text, want := range map[string]Value{
		`"a"`: "a", `true`: true, `2`: 2.0, `null`: nil,
		`{"s":"a"}`: "a", `{"t":0,"s":"a"}`: "a", `{"t":3,"b":true}`: true, `{"t":4,"n":2}`: 2.0,
		`{"t":1}`: []any{}, `{"t":1,"a":[1,{"t":1,"a":["x"]}]}`: []any{1.0, []any{"x"}},
	} {
		var c ContextData
		require.NoError(t, json.Unmarshal([]byte(text), &c), text)
		require.Equal(t, want, c.Value, text)
	}
	for _, text := range []string{`[1]`, `{"t":9}`, `{"t":2,"d":[1]}`, `{"t":1,"a":[{"t":9}]}`} {
		var c ContextData
		require.ErrorIs(t, json.Unmarshal([]byte(text), &c), ErrMessage, text)
	}
}

func TestToken_ReadsBothForms(t *testing.T) {
	for text, want := range map[string]Token{
		`"a"`:                           {Text: "a"},
		`{"type":0,"lit":"a","file":1}`: {Text: "a"},
		`true`:                          {Kind: TokenBool, Bool: true},
		`{"type":5,"bool":true}`:        {Kind: TokenBool, Bool: true},
		`{"type":6,"num":2}`:            {Kind: TokenNumber, Number: 2},
		`null`:                          {Kind: TokenNull},
		`{"type":3,"expr":"x"}`:         {Kind: TokenExpression, Text: "x"},
		`{"type":1,"seq":["a"]}`:        {Kind: TokenSequence, Items: []Token{{Text: "a"}}},
		`{"type":2,"map":[{"key":"k","value":1}]}`: {Kind: TokenMapping, Pairs: []TokenPair{{Token{Text: "k"}, Token{Kind: TokenNumber, Number: 1}}}},
	} {
		var got Token
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{`[1]`, `{"type":99}`, `{"type":2,"map":[1]}`, `{"type":1,"seq":[[]]}`} {
		var got Token
		require.ErrorIs(t, json.Unmarshal([]byte(text), &got), ErrMessage, text)
	}
	_, err := Scope{}.EvalToken(Token{Kind: TokenInsert, Text: "insert"})
	require.ErrorIs(t, err, ErrMessage)
}

func TestConclusionFromResult(t *testing.T) {
	for result, want := range map[string]Conclusion{"Succeeded": Success, "failed": Failure, "Canceled": Cancelled, "skipped": Skipped} {
		got, ok := ConclusionFromResult(result)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok := ConclusionFromResult("odd")
	require.False(t, ok)
}

func FuzzParseJobMessage(f *testing.F) {
	data, err := json.Marshal(fullMessage(f))
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"jobId":"a","plan":{"planId":"b"},"steps":[{"inputs":{"type":2,"map":[{"Key":{"type":3,"expr":"x"},"Value":[]}]}}]}`))
	f.Add([]byte(`{"jobId":"a","plan":{"planId":"b"},"contextData":{"github":{"t":2,"d":[{"k":"a","v":{"t":1,"a":[{"t":4,"n":1}]}}]}}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseJobMessage(data)
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		requireRoundTrip(t, m)
		scope := Scope{Contexts: m.Contexts()}
		for _, s := range m.Steps {
			if s.Inputs != nil {
				_, _ = scope.EvalToken(*s.Inputs)
			}
		}
	})
}
