package standin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	containerhook "github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/servicename"
)

// fakeHookVariable makes this test's program a container hook: it plans containers as the product does, and runs every command on this machine.
const fakeHookVariable = "BULLPEN_TEST_FAKE_HOOK"

func TestMain(m *testing.M) {
	if os.Getenv(fakeHookVariable) != "" {
		code, err := fakeHook(os.Stdin)
		if err != nil {
			fmt.Printf("::error::%v\n", err)
			code = 1
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// fakeHookFile is the hook that an environment names.
func fakeHookFile(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "hook.sh")
	require.NoError(t, writeFile(file, fmt.Sprintf("export %s=1\nexec '%s'\n", fakeHookVariable, self)))
	return file
}

type fakeMount struct {
	Source string `json:"sourceVolumePath"`
	Target string `json:"targetVolumePath"`
}

type fakeContainer struct {
	EntryPoint  string            `json:"entryPoint"`
	Args        []string          `json:"entryPointArgs"`
	Dir         string            `json:"workingDirectory"`
	Env         map[string]string `json:"environmentVariables"`
	PrependPath []string          `json:"prependPath"`
	Ports       []string          `json:"portMappings"`
	Mounts      []fakeMount       `json:"systemMountVolumes"`
}

type fakeInput struct {
	Command      string `json:"command"`
	ResponseFile string `json:"responseFile"`
	Args         struct {
		fakeContainer
		Container *fakeContainer  `json:"container"`
		Services  []fakeContainer `json:"services"`
	} `json:"args"`
	State fakeState `json:"state"`
}

// fakeState has where the directories of the job's container really are.
type fakeState struct {
	Mounts []fakeMount `json:"mounts"`
}

func fakeHook(stdin io.Reader) (int, error) {
	text, err := io.ReadAll(stdin)
	if err != nil {
		return 0, err
	}
	if strings.Count(string(text), "\n") != 1 {
		return 0, errors.New("the input is not one line")
	}
	var in fakeInput
	if err := json.Unmarshal(text, &in); err != nil {
		return 0, err
	}
	if answer, err := os.ReadFile(in.ResponseFile); err != nil || len(answer) > 0 {
		return 0, fmt.Errorf("the file of the answer is not there, or not empty: %w", err)
	}
	if err := planned(text); err != nil {
		return 0, err
	}
	switch in.Command {
	case "prepare_job":
		return 0, in.prepare()
	case "run_script_step":
		return in.Args.run(in.State.Mounts)
	case "run_container_step":
		// An image's own entry point can't be run here.
		joined := strings.Join(append([]string{in.Args.EntryPoint}, in.Args.Args...), " ")
		step := in.Args.fakeContainer
		step.EntryPoint, step.Args = "sh", []string{"-c", joined}
		return step.run(in.Args.Mounts)
	}
	return 0, nil
}

// planned has the product plan the containers, as in a runner's pod: what it would refuse fails the job.
func planned(text []byte) error {
	in, err := containerhook.Parse(text)
	if err != nil {
		return err
	}
	runner := plan.Runner{Platform: "linux/amd64", Work: filepath.Dir(filepath.Dir(filepath.Dir(in.ResponseFile)))}
	var draft plan.Draft
	switch in.Command {
	case containerhook.PrepareJob:
		var images []string
		for _, service := range in.Prepare.Services {
			images = append(images, service.Image)
		}
		job := plan.Job{Container: in.Prepare.Container, Services: in.Prepare.Services, Names: servicename.Resolve(nil, images)}
		draft, err = plan.ForJob(job, runner)
	case containerhook.RunContainerStep:
		draft, err = plan.ForStep(in.Step, runner)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	var granted []jobcontainer.Granted
	for i, wanted := range draft.Wanted() {
		config := jobcontainer.ImageConfig{OS: "linux", Architecture: "amd64", Cmd: []string{"sh"}}
		granted = append(granted, jobcontainer.Granted{Role: wanted.Role, Position: wanted.Position, Name: fmt.Sprintf("container-%d", i), Image: wanted.Image, Config: config})
	}
	complete, err := draft.Complete(granted)
	for _, warning := range complete.Warnings {
		fmt.Printf("::warning::%s\n", warning)
	}
	return err
}

func (in *fakeInput) prepare() error {
	services := []map[string]any{}
	for i, s := range in.Args.Services {
		ports := map[string]string{}
		for _, port := range s.Ports {
			outer, inner, ok := strings.Cut(port, ":")
			if !ok {
				inner = outer
			}
			ports[inner] = outer
		}
		services = append(services, map[string]any{"id": fmt.Sprintf("service-%d", i), "network": "pod", "ports": ports})
	}
	context := map[string]any{"services": services}
	answer := map[string]any{"context": context, "isAlpine": false}
	if c := in.Args.Container; c != nil {
		context["container"] = map[string]string{"id": "job-container", "network": "pod"}
		answer["state"] = fakeState{c.Mounts}
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return os.WriteFile(in.ResponseFile, data, 0o600)
}

// run runs a command with the paths of its container put back.
func (c *fakeContainer) run(mounts []fakeMount) (int, error) {
	slices.SortFunc(mounts, func(a, b fakeMount) int { return len(b.Target) - len(a.Target) })
	outside := func(path string) string {
		for _, m := range mounts {
			if rest, ok := strings.CutPrefix(path, m.Target); ok && (rest == "" || rest[0] == '/') {
				return m.Source + rest
			}
		}
		return path
	}
	var args []string
	for _, arg := range c.Args {
		args = append(args, outside(arg))
	}
	cmd := exec.Command(c.EntryPoint, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = outside(c.Dir), os.Stdout, os.Stdout
	path := append(slices.Clone(c.PrependPath), os.Getenv("PATH"))
	cmd.Env = []string{"PATH=" + strings.Join(path, ":")}
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+outside(value))
	}
	err := cmd.Run() // bounded: the runner that started this hook ends it
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
