package hook

import (
	"encoding/json"
	"fmt"
)

// Prepared is the response to PrepareJob. The runner of GitHub ends with a null reference or an index out of range if a part of it
// is null or has the wrong length (ContainerHookManager.cs), so Encode compares it with the question.
type Prepared struct {
	State     json.RawMessage // an object that comes with every later call; nil: none
	Alpine    bool            // the job container is Alpine Linux, so node actions need the runner's node for musl
	Container *Started        // nil if, and only if, no job container was asked for
	Services  []Started       // in the order of the question, one for each
}

// Started says how a container can be reached: `job.container` and `job.services.<name>` of the workflow.
type Started struct {
	ID      string            `json:"id"`
	Network string            `json:"network"`
	Ports   map[string]string `json:"ports"` // container port to host port, without protocols; services only
}

// Encode returns the content of the response file.
func (p Prepared) Encode(args PrepareJobArgs) ([]byte, error) {
	if (p.Container != nil) != (args.Container != nil) {
		return nil, fmt.Errorf("encoding the response to %s: a job container was asked for: %t, and is in the response: %t", PrepareJob, args.Container != nil, p.Container != nil)
	}
	if len(p.Services) != len(args.Services) {
		return nil, fmt.Errorf("encoding the response to %s: %d services were asked for, and %d are in the response", PrepareJob, len(args.Services), len(p.Services))
	}
	type container struct {
		ID      string `json:"id"`
		Network string `json:"network"`
	}
	response := struct {
		State   json.RawMessage `json:"state,omitempty"`
		Alpine  *bool           `json:"isAlpine,omitempty"`
		Context struct {
			Container *container `json:"container,omitempty"`
			Services  []Started  `json:"services"`
		} `json:"context"`
	}{State: p.State}
	response.Context.Services = make([]Started, 0, len(p.Services))
	if p.Container != nil {
		if err := p.Container.check("the job container"); err != nil {
			return nil, err
		}
		response.Alpine = &p.Alpine
		response.Context.Container = &container{ID: p.Container.ID, Network: p.Container.Network}
	}
	for i, service := range p.Services {
		if err := service.check(fmt.Sprintf("service %d", i+1)); err != nil {
			return nil, err
		}
		if service.Ports == nil {
			service.Ports = map[string]string{}
		}
		response.Context.Services = append(response.Context.Services, service)
	}
	return marshal(PrepareJob, p.State, response)
}

func (s Started) check(what string) error {
	if s.ID == "" || s.Network == "" {
		return fmt.Errorf("encoding the response to %s: %s has no id or no network", PrepareJob, what)
	}
	return nil
}

// EncodeState returns the content of the response file of every other command. The new state replaces the one before. Without one,
// the file may stay empty.
func EncodeState(command Command, state json.RawMessage) ([]byte, error) {
	return marshal(command, state, struct {
		State json.RawMessage `json:"state,omitempty"`
	}{state})
}

func marshal(command Command, state json.RawMessage, response any) ([]byte, error) {
	if state != nil {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(state, &object); err != nil || object == nil {
			return nil, fmt.Errorf("encoding the response to %s: the state must be a JSON object", command)
		}
	}
	data, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("encoding the response to %s: %w", command, err)
	}
	return data, nil
}
