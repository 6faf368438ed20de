package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// What a container hook reads on standard input, and what it answers (ContainerHooks/HookInput.cs and HookResponse.cs of actions/runner).
// Fields that are null are written: GitHub's worker does so.

// hookCommand is what the hook is called for. In messages GitHub's worker names it by title.
type hookCommand struct{ name, title string }

var (
	prepareJob       = hookCommand{"prepare_job", "PrepareJob"}
	runScriptStep    = hookCommand{"run_script_step", "RunScriptStep"}
	runContainerStep = hookCommand{"run_container_step", "RunContainerStep"}
	cleanupJob       = hookCommand{"cleanup_job", "CleanupJob"}
)

type hookInput struct {
	Command      string          `json:"command"`
	ResponseFile string          `json:"responseFile"`
	Args         any             `json:"args"`
	State        json.RawMessage `json:"state"`
}

type prepareArgs struct {
	Container *hookContainer  `json:"container"`
	Services  []hookContainer `json:"services"`
}

type scriptArgs struct {
	EntryPointArgs       []string          `json:"entryPointArgs"`
	EntryPoint           string            `json:"entryPoint"`
	EnvironmentVariables map[string]string `json:"environmentVariables"`
	PrependPath          []string          `json:"prependPath"`
	WorkingDirectory     string            `json:"workingDirectory"`
}

type hookContainer struct {
	Image                *string           `json:"image"`
	Dockerfile           *string           `json:"dockerfile"`
	EntryPointArgs       []string          `json:"entryPointArgs"`
	EntryPoint           *string           `json:"entryPoint"`
	WorkingDirectory     *string           `json:"workingDirectory"`
	CreateOptions        *string           `json:"createOptions"`
	Registry             *hookRegistry     `json:"registry"`
	EnvironmentVariables map[string]string `json:"environmentVariables"`
	PortMappings         []string          `json:"portMappings"`
	SystemMountVolumes   []mount           `json:"systemMountVolumes"`
	UserMountVolumes     []mount           `json:"userMountVolumes"`
}

type hookRegistry struct {
	Username  string `json:"username"`
	Password  string `json:"password"`
	ServerURL string `json:"serverUrl"`
}

type mount struct {
	UserProvidedValue *string `json:"userProvidedValue"`
	Source            *string `json:"sourceVolumePath"`
	Target            string  `json:"targetVolumePath"`
	ReadOnly          bool    `json:"readOnly"`
}

// userMount reads an entry of `volumes`: source:target:ro, source:target, target:ro or target.
func userMount(text string) mount {
	m := mount{UserProvidedValue: &text, Target: text}
	parts := strings.Split(text, ":")
	switch {
	case len(parts) == 3:
		m.Source, m.Target, m.ReadOnly = &parts[0], parts[1], strings.EqualFold(parts[2], "ro")
	case len(parts) == 2 && strings.EqualFold(parts[1], "ro"):
		m.Target, m.ReadOnly = parts[0], true
	case len(parts) == 2:
		m.Source, m.Target = &parts[0], parts[1]
	}
	return m
}

func systemMount(source, target string, readOnly bool) mount {
	return mount{Source: &source, Target: target, ReadOnly: readOnly}
}

// hookResponse is the answer of a hook.
type hookResponse struct {
	State    json.RawMessage `json:"state"`
	IsAlpine *bool           `json:"isAlpine"`
	Context  *struct {
		Container *hookResponseContainer `json:"container"`
		Services  json.RawMessage        `json:"services"`
	} `json:"context"`
}

type hookResponseContainer struct {
	ID      *string        `json:"id"`
	Network *string        `json:"network"`
	Ports   map[string]any `json:"ports"`
}

// .NET's texts for what GitHub's worker doesn't expect in an answer: it takes the fields as they are.
var (
	errNullReference = errors.New("Object reference not set to an instance of an object.")
	errOutOfRange    = errors.New("Index was out of range. Must be non-negative and less than the size of the collection. (Parameter 'index')")
)

// parseResponse reads an answer; nil for an empty file, and for null.
func parseResponse(data []byte) (*hookResponse, error) {
	text := strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff"))
	if text == "" || text == "null" {
		return nil, nil
	}
	var r hookResponse
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if s := strings.TrimSpace(string(r.State)); s == "" || s == "null" {
		r.State = nil
	} else if s[0] != '{' {
		return nil, errors.New("reading the answer: its state is not an object")
	}
	return &r, nil
}

// jobContext is what the job context has of the containers of a job.
type jobContext struct{ container, services *workflow.Object }

// contextOf reads what an answer to prepare_job says of the containers, as strictly as GitHub's worker: a field that it needs and that is missing is an error.
func (r *hookResponse) contextOf(hasContainer bool, services []string) (jobContext, error) {
	out := jobContext{workflow.NewObject(), workflow.NewObject()}
	if r == nil {
		return out, errNullReference
	}
	if r.Context == nil {
		return out, nil
	}
	if c := r.Context.Container; c != nil && (c.ID != nil || c.Network != nil) {
		if !hasContainer {
			return out, errNullReference
		}
		for key, value := range map[string]*string{"id": c.ID, "network": c.Network} {
			if value != nil {
				out.container.Set(key, *value)
			}
		}
	}
	if r.Context.Services == nil {
		return out, nil
	}
	var list []*hookResponseContainer
	if err := json.Unmarshal(r.Context.Services, &list); err != nil {
		return out, fmt.Errorf("reading the answer: %w", err)
	}
	if list == nil {
		return out, errNullReference
	}
	for i, s := range list {
		switch {
		case s == nil:
			return out, errNullReference
		case i >= len(services):
			return out, errOutOfRange
		case s.Ports == nil:
			return out, errNullReference
		}
		ports := workflow.NewObject()
		for _, port := range sortedNames(stringsOf(s.Ports)) {
			ports.Set(port, workflow.ToString(s.Ports[port]))
		}
		out.services.Set(services[i], workflow.NewObject("id", deref(s.ID), "ports", ports, "network", deref(s.Network)))
	}
	return out, nil
}

func stringsOf(m map[string]any) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = workflow.ToString(v)
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orNull is nil for an empty text.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
