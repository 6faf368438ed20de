package hook

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrepared_Encode(t *testing.T) {
	two := PrepareJobArgs{Container: &Container{Image: "a"}, Services: make([]Container, 2)}
	data, err := Prepared{State: json.RawMessage(`{"id":"1"}`), Container: &Started{ID: "job", Network: "pod", Ports: map[string]string{"1": "1"}},
		Services: []Started{{ID: "s0", Network: "pod"}, {ID: "s1", Network: "pod", Ports: map[string]string{"80": "8080"}}}}.Encode(two)
	require.NoError(t, err)
	require.JSONEq(t, `{"state":{"id":"1"},"isAlpine":false,"context":{"container":{"id":"job","network":"pod"},
		"services":[{"id":"s0","network":"pod","ports":{}},{"id":"s1","network":"pod","ports":{"80":"8080"}}]}}`, string(data))

	data, err = Prepared{Alpine: true, Container: &Started{ID: "job", Network: "pod"}}.Encode(PrepareJobArgs{Container: &Container{}})
	require.NoError(t, err)
	require.JSONEq(t, `{"isAlpine":true,"context":{"container":{"id":"job","network":"pod"},"services":[]}}`, string(data))
}

// The runner ends with a null reference if a job without a job container is answered with one.
func TestPrepared_ServicesOnlyHaveNoContainer(t *testing.T) {
	data, err := Prepared{Services: []Started{{ID: "s", Network: "pod"}}}.Encode(PrepareJobArgs{Services: make([]Container, 1)})
	require.NoError(t, err)
	require.JSONEq(t, `{"context":{"services":[{"id":"s","network":"pod","ports":{}}]}}`, string(data))
}

func TestPrepared_RefusesWhatTheRunnerCanNotRead(t *testing.T) {
	started := Started{ID: "s", Network: "pod"}
	for _, c := range []struct {
		response Prepared
		args     PrepareJobArgs
		problem  string
	}{
		{Prepared{Container: &started}, PrepareJobArgs{}, "a job container was asked for: false, and is in the response: true"},
		{Prepared{}, PrepareJobArgs{Container: &Container{}}, "a job container was asked for: true, and is in the response: false"},
		{Prepared{Services: []Started{started, started}}, PrepareJobArgs{Services: make([]Container, 1)}, "1 services were asked for, and 2 are in the response"},
		{Prepared{}, PrepareJobArgs{Services: make([]Container, 1)}, "1 services were asked for, and 0 are in the response"},
		{Prepared{Services: []Started{{ID: "s"}}}, PrepareJobArgs{Services: make([]Container, 1)}, "service 1 has no id or no network"},
		{Prepared{Container: &Started{Network: "n"}}, PrepareJobArgs{Container: &Container{}}, "the job container has no id or no network"},
		{Prepared{State: json.RawMessage(`[]`)}, PrepareJobArgs{}, "the state must be a JSON object"},
		{Prepared{State: json.RawMessage(`null`)}, PrepareJobArgs{}, "the state must be a JSON object"},
	} {
		_, err := c.response.Encode(c.args)
		require.ErrorContains(t, err, c.problem)
	}
}

func TestEncodeState(t *testing.T) {
	data, err := EncodeState(RunScriptStep, json.RawMessage(`{"a":1}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"state":{"a":1}}`, string(data))
	data, err = EncodeState(CleanupJob, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(data))
	_, err = EncodeState(CleanupJob, json.RawMessage(`5`))
	require.ErrorContains(t, err, "the state must be a JSON object")
}
