package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded returns the inputs that GitHub's own runner (2.336.0) wrote to a hook.
func recorded(t testing.TB, name string) [][]byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".jsonl")
	require.NoError(t, err)
	return bytes.Split(bytes.TrimSpace(data), []byte("\n"))
}

// A field of a recorded input that Parse does not carry over would be missing here.
func TestParse_RecordedInputsFieldByField(t *testing.T) {
	var commands []Command
	for _, name := range []string{"all", "services-only"} {
		for i, line := range recorded(t, name) {
			input, err := Parse(line)
			require.NoError(t, err, "%s, line %d", name, i+1)
			require.Empty(t, input.Ignored, "%s, line %d", name, i+1)
			commands = append(commands, input.Command)
			var want any
			require.NoError(t, json.Unmarshal(line, &want))
			require.Equal(t, leaves("", want), leaves("", remade(t, input)), "%s, line %d", name, i+1)
		}
	}
	require.Equal(t, []Command{PrepareJob, RunScriptStep, RunScriptStep, RunScriptStep, RunContainerStep, RunScriptStep, CleanupJob, PrepareJob, CleanupJob}, commands)
}

// remade is the input as JSON again.
func remade(t *testing.T, input Input) any {
	t.Helper()
	args := any(struct{}{})
	switch input.Command {
	case PrepareJob:
		args = input.Prepare
	case RunScriptStep:
		args = input.Script
	case RunContainerStep:
		args = input.Step
	}
	data, err := json.Marshal(map[string]any{"command": input.Command, "responseFile": input.ResponseFile, "args": args, "state": input.State})
	require.NoError(t, err)
	var value any
	require.NoError(t, json.Unmarshal(data, &value))
	return value
}

// leaves lists every value with its path. null, an empty string and an empty list are the same to a hook.
func leaves(path string, value any) map[string]string {
	all := map[string]string{}
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			for at, leaf := range leaves(path+"."+name, field) {
				all[at] = leaf
			}
		}
		if len(value) == 0 {
			all[path] = "nothing"
		}
	case []any:
		for i, element := range value {
			for at, leaf := range leaves(fmt.Sprintf("%s[%d]", path, i), element) {
				all[at] = leaf
			}
		}
		if len(value) == 0 {
			all[path] = "nothing"
		}
	case nil:
		all[path] = "nothing"
	case string:
		all[path] = "string " + value
		if value == "" {
			all[path] = "nothing"
		}
	default:
		all[path] = fmt.Sprint(value)
	}
	return all
}

func TestParse_ReadsWhatAJobNeeds(t *testing.T) {
	inputs := recorded(t, "all")
	prepare, err := Parse(inputs[0])
	require.NoError(t, err)
	require.Nil(t, prepare.State)
	require.Equal(t, "debian:12", prepare.Prepare.Container.Image)
	require.Equal(t, "/__w/app/app", prepare.Prepare.Container.WorkingDirectory)
	require.Equal(t, map[string]string{"HOME": "/github/home"}, prepare.Prepare.Container.EnvironmentVariables)
	require.Len(t, prepare.Prepare.Container.SystemMountVolumes, 8)
	require.Equal(t, Mount{Source: "/home/runner/externals", Target: "/__e", ReadOnly: true}, prepare.Prepare.Container.SystemMountVolumes[2])
	require.Equal(t, []string{"5432"}, prepare.Prepare.Services[0].PortMappings)

	script, err := Parse(inputs[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"pod":"r-7"}`, string(script.State))
	require.Equal(t, "sh", script.Script.EntryPoint)
	require.Equal(t, "/tmp", script.Script.WorkingDirectory)

	step, err := Parse(inputs[4])
	require.NoError(t, err)
	require.Equal(t, "/bin/sh", step.Step.EntryPoint)
	require.Equal(t, []string{"echo", `"a`, `b"`, "c"}, step.Step.EntryPointArgs)

	services, err := Parse(recorded(t, "services-only")[0])
	require.NoError(t, err)
	require.Nil(t, services.Prepare.Container)
}

func TestParse_Refuses(t *testing.T) {
	call := func(command, args string) string {
		return `{"command":"` + command + `","responseFile":"/r","args":` + args + `,"state":null}`
	}
	for text, problem := range map[string]string{
		``:                                     "the JSON ends too early",
		`{"command":"cleanup_job"`:             "the JSON ends too early",
		`{"command":}`:                         "invalid JSON",
		`[]`:                                   "the input must be an object, got a list",
		`null`:                                 "the input must be an object, got null",
		`{}`:                                   "command is missing",
		`{"command":5}`:                        "command must be a string, got a number",
		`{"command":"cleanup_job"}`:            "responseFile is missing",
		`{"Command":"cleanup_job"}`:            "command is missing",
		call("prepare", "{}"):                  `unknown command "prepare"`,
		call("cleanup_job", "{}") + "{}":       "something follows the JSON object",
		call("cleanup_job", "[]"):              "args must be an object, got a list",
		call("prepare_job", `{"services":{}}`): "args.services must be a list, got an object",
		call("prepare_job", `{"services":[{"image":"x"},{"image":null}]}`):                                                   "args.services[1].image is missing",
		call("prepare_job", `{"container":"debian"}`):                                                                        "args.container must be an object, got a string",
		call("prepare_job", `{"container":{"image":""}}`):                                                                    "args.container.image is empty",
		call("prepare_job", `{"container":{"image":"x","portMappings":[80]}}`):                                               "args.container.portMappings[0] must be a string, got a number",
		call("prepare_job", `{"container":{"image":"x","environmentVariables":{"A":1}}}`):                                    "args.container.environmentVariables.A must be a string, got a number",
		call("prepare_job", `{"container":{"image":"x","environmentVariables":{"A=B":""}}}`):                                 `args.container.environmentVariables has the variable "A=B", which is no name`,
		call("prepare_job", `{"container":{"image":"x\u0000"}}`):                                                             "args.container.image contains a NUL character",
		call("prepare_job", `{"container":{"image":"x","registry":{"password":"p"}}}`):                                       "args.container.registry.username is missing",
		call("prepare_job", `{"container":{"image":"x","registry":{"username":"u","password":"p","insecure":true}}}`):        "args.container.registry.insecure is not known",
		call("prepare_job", `{"container":{"image":"x","userMountVolumes":[{"targetVolumePath":"/x","propagation":"rw"}]}}`): "args.container.userMountVolumes[0].propagation is not known",
		call("prepare_job", `{"container":{"image":"x","userMountVolumes":[{"targetVolumePath":"/x","readOnly":"yes"}]}}`):   "args.container.userMountVolumes[0].readOnly must be true or false, got a string",
		call("run_script_step", `{}`):                                     "args.entryPoint is missing",
		call("run_script_step", `{"entryPoint":"sh","prependPath":"/a"}`): "args.prependPath must be a list, got a string",
		call("run_container_step", `{}`):                                  "args.image and dockerfile are missing",
		`{"command":"cleanup_job","responseFile":"/r","state":[1]}`:       "state must be an object, got a list",
		`{"command":"cleanup_job","command":"prepare_job"}`:               `the name "command" occurs twice in an object`,
		`{"state":` + strings.Repeat("[", 70):                             "it is nested deeper than 64 levels",
	} {
		_, err := Parse([]byte(text))
		require.ErrorContains(t, err, problem, text)
		var syntax *SyntaxError
		var field *FieldError
		var command *CommandError
		require.True(t, errors.As(err, &syntax) || errors.As(err, &field) || errors.As(err, &command), text)
	}
	_, err := Parse(bytes.Repeat([]byte(" "), MaxInput+1))
	require.ErrorContains(t, err, "it is larger than 16 MiB")
}

// A password stands in no error.
func TestParse_ErrorsHaveNoValues(t *testing.T) {
	_, err := Parse([]byte(`{"command":"prepare_job","responseFile":"/r","args":{"container":{"image":"x","registry":{"username":"u","password":["hunter2"]}}}}`))
	require.ErrorContains(t, err, "args.container.registry.password must be a string, got a list")
	require.NotContains(t, err.Error(), "hunter2")
}

// What a newer runner adds to its classes does not stop a job.
func TestParse_IgnoresFieldsThatTheRunnerAdds(t *testing.T) {
	input, err := Parse([]byte(`{"command":"prepare_job","responseFile":"/r","version":2,"args":{"container":{"image":"x","name":"job"},"services":[{"image":"y","contextName":"db"}],"os":"linux"}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"args.container.name", "args.services[0].contextName", "args.os", "version"}, input.Ignored)
}

// The runner's null is an empty value.
func TestParse_NullIsNothing(t *testing.T) {
	input, err := Parse([]byte(`{"command":"run_script_step","responseFile":"/r","args":{"entryPoint":"sh","entryPointArgs":null,"environmentVariables":{"A":null},"prependPath":null,"workingDirectory":null},"state":null}`))
	require.NoError(t, err)
	require.Equal(t, ScriptStepArgs{EntryPoint: "sh", EnvironmentVariables: map[string]string{"A": ""}}, input.Script)
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"all", "services-only"} {
		for _, line := range recorded(f, name) {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		input, err := Parse(data)
		if err != nil {
			return
		}
		require.NotEmpty(t, input.ResponseFile)
		again, err := json.Marshal(remade(t, input))
		require.NoError(t, err)
		second, err := Parse(again)
		require.NoError(t, err)
		require.Equal(t, leaves("", remade(t, input)), leaves("", remade(t, second)))
	})
}
