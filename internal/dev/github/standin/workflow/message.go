package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// MessageType is the kind of message that carries a job of the run service.
const MessageType = "RunnerJobRequest"

// Variables that both sides of the protocol know by name.
const (
	VarToken   = "system.github.token"
	VarJob     = "system.github.job"
	VarResults = "system.github.results_endpoint"
	// VarLaunch is where a runner has the actions of a job resolved.
	VarLaunch = "system.github.launch_endpoint"
	// VarOrchestration names the job in logs of both sides, VarRunnerGroup the runner's group.
	VarOrchestration = "system.orchestrationId"
	VarRunnerGroup   = "system.runnerGroupName"
	// VarContainerHooks allows a runner to run job containers by the hook that its environment names.
	VarContainerHooks = "DistributedTask.AllowRunnerContainerHooks"
	// VarServiceCommand allows the keys entrypoint and command of a service.
	VarServiceCommand = "actions_service_container_command"
	// VarTimeout is this project's own: the job's timeout in minutes. GitHub keeps it to itself and cancels
	// the job from its side; the development runner honours it when it is there.
	VarTimeout = "bullpen.job_timeout_minutes"
)

// Data of the system connection, by the names that runners know.
const (
	DataResults = "ResultsServiceUrl"
	// DataFeed is the web socket that takes a job's log line by line while it runs.
	DataFeed  = "FeedStreamUrl"
	DataCache = "CacheServerUrl"
	// DataIDToken is where a job with the permission id-token: write gets tokens that prove what it is.
	DataIDToken = "GenerateIdTokenUrl"
)

// SystemConnection names the endpoint by which a runner reaches the run service.
const SystemConnection = "SystemVssConnection"

// Message is the job message of the runner protocol, the answer of acquirejob. Its JSON is what the genuine
// runner reads.
type Message struct {
	MessageType          string                 `json:"messageType"`
	Plan                 Plan                   `json:"plan"`
	Timeline             Timeline               `json:"timeline"`
	JobID                string                 `json:"jobId"`
	JobDisplayName       string                 `json:"jobDisplayName"`
	JobName              string                 `json:"jobName"`
	JobContainer         *Token                 `json:"jobContainer,omitempty"`
	JobServiceContainers *Token                 `json:"jobServiceContainers,omitempty"`
	JobOutputs           *Token                 `json:"jobOutputs,omitempty"`
	RequestID            int64                  `json:"requestId"`
	LockedUntil          string                 `json:"lockedUntil"`
	Resources            Resources              `json:"resources"`
	ContextData          map[string]ContextData `json:"contextData"`
	Workspace            Workspace              `json:"workspace"`
	Mask                 []MaskHint             `json:"mask"`
	EnvironmentVariables []Token                `json:"environmentVariables"`
	Defaults             []Token                `json:"defaults"`
	Variables            map[string]Variable    `json:"variables"`
	Steps                []Step                 `json:"steps"`
	FileTable            []string               `json:"fileTable"`
}

// Plan names the run.
type Plan struct {
	ScopeIdentifier string `json:"scopeIdentifier"`
	PlanType        string `json:"planType"`
	Version         int    `json:"version"`
	PlanID          string `json:"planId"`
}

// Timeline names the record of the job's progress.
type Timeline struct {
	ID       string `json:"id"`
	ChangeID int    `json:"changeId"`
}

// Resources lists the services that the runner may call.
type Resources struct {
	Endpoints []Endpoint `json:"endpoints"`
}

// Endpoint is one service with its credentials.
type Endpoint struct {
	Name          string            `json:"name"`
	URL           string            `json:"url"`
	Authorization Authorization     `json:"authorization"`
	Data          map[string]string `json:"data"`
	IsShared      bool              `json:"isShared"`
	IsReady       bool              `json:"isReady"`
}

// Authorization carries an endpoint's token in Parameters["AccessToken"].
type Authorization struct {
	Scheme     string            `json:"scheme"`
	Parameters map[string]string `json:"parameters"`
}

// Workspace says what of the working directory to clean.
type Workspace struct {
	Clean string `json:"clean,omitempty"`
}

// MaskHint is a pattern to keep out of logs.
type MaskHint struct {
	Type  string `json:"type"` // "regex"
	Value string `json:"value"`
}

// Variable is a job variable or a secret.
type Variable struct {
	Value    string `json:"value"`
	IsSecret bool   `json:"isSecret,omitempty"`
}

// Step is one step: a script, an image, or an action of the workspace.
type Step struct {
	Type             string    `json:"type"`
	Reference        Reference `json:"reference"`
	ID               string    `json:"id"`
	Name             string    `json:"name"`
	ContextName      string    `json:"contextName"`
	DisplayName      *Token    `json:"displayNameToken,omitempty"`
	Condition        string    `json:"condition"`
	ContinueOnError  *Token    `json:"continueOnError,omitempty"`
	TimeoutInMinutes *Token    `json:"timeoutInMinutes,omitempty"`
	Environment      *Token    `json:"environment,omitempty"`
	Inputs           *Token    `json:"inputs,omitempty"`
}

// The types of references.
const (
	ReferenceScript = "script"
	ReferenceImage  = "containerRegistry"
	ReferenceAction = "repository"
)

// Reference says what a step runs.
type Reference struct {
	Type  string `json:"type"`
	Image string `json:"image,omitempty"` // of an image, without docker://
	// RepositoryType is "self" for an action of the workspace, whose directory Path is; other actions have a Name and a Ref.
	RepositoryType string `json:"repositoryType,omitempty"`
	Name           string `json:"name,omitempty"`
	Ref            string `json:"ref,omitempty"`
	Path           string `json:"path,omitempty"`
}

// RepositorySelf is the type of a repository that is the workspace.
const RepositorySelf = "self"

// MessageParams is what the service adds to a job. The ids are GUIDs.
type MessageParams struct {
	PlanID, TimelineID, JobID string
	RequestID                 int64
	// ServiceURL is the run service, ResultsURL the Results service.
	ServiceURL, ResultsURL string
	// FeedURL, CacheURL, IDTokenURL and LaunchURL are further services; one that is empty is not named to the runner. IDTokenURL is named
	// only to a job that has the permission.
	FeedURL, CacheURL, IDTokenURL, LaunchURL string
	// OrchestrationID and RunnerGroup are what the variables of that name say.
	OrchestrationID, RunnerGroup string
	// AccessToken opens both services; GitHubToken is the job's GITHUB_TOKEN.
	AccessToken, GitHubToken string
	Secrets                  map[string]string
	Variables                map[string]string
	// StepID makes the GUID of a step; by default it follows from JobID and the index.
	StepID func(index int) string
}

// JobMessage writes a ready job in the protocol's encoding.
func JobMessage(job Job, p MessageParams) (*Message, error) {
	for _, id := range []string{p.PlanID, p.TimelineID, p.JobID} {
		if _, err := uuid.Parse(id); err != nil {
			return nil, fmt.Errorf("writing the message of job %s: %q is no GUID", job.Key, id)
		}
	}
	if job.Def == nil || job.Contexts == nil {
		return nil, fmt.Errorf("writing the message of job %s: it did not come from Run.Next", job.Key)
	}
	m := &Message{
		MessageType: MessageType, JobID: p.JobID, JobDisplayName: job.Name, JobName: job.ID, RequestID: p.RequestID,
		LockedUntil: "0001-01-01T00:00:00",
		Plan:        Plan{ScopeIdentifier: uuid.Nil.String(), PlanType: "free", Version: 12, PlanID: p.PlanID},
		Timeline:    Timeline{ID: p.TimelineID},
		Resources:   Resources{Endpoints: []Endpoint{endpoint(job, p)}},
		ContextData: map[string]ContextData{},
		Mask:        []MaskHint{}, EnvironmentVariables: []Token{}, Defaults: []Token{}, Steps: []Step{},
		Variables: variables(job, p),
		FileTable: []string{job.Def.workflow.File},
	}
	for _, name := range job.Contexts.Keys() {
		v, _ := job.Contexts.Get(name)
		m.ContextData[name] = ContextData{v}
	}
	for _, secret := range []string{p.GitHubToken, p.AccessToken} {
		if secret != "" {
			m.Mask = append(m.Mask, MaskHint{"regex", regexp.QuoteMeta(secret)})
		}
	}
	if err := m.addDefinition(job.Def, p); err != nil {
		return nil, fmt.Errorf("writing the message of job %s: %w", job.Key, err)
	}
	return m, nil
}

func endpoint(job Job, p MessageParams) Endpoint {
	data := map[string]string{DataResults: p.ResultsURL, DataFeed: p.FeedURL, DataCache: p.CacheURL}
	if job.Def.IDToken {
		data[DataIDToken] = p.IDTokenURL
	}
	maps.DeleteFunc(data, func(_, address string) bool { return address == "" })
	return Endpoint{
		Name: SystemConnection,
		// The genuine runner resolves "completejob" relative to this address: without the slash it would lose
		// the last part of the path.
		URL:           strings.TrimSuffix(p.ServiceURL, "/") + "/",
		Authorization: Authorization{Scheme: "OAuth", Parameters: map[string]string{"AccessToken": p.AccessToken}},
		Data:          data,
		IsReady:       true,
	}
}

func variables(job Job, p MessageParams) map[string]Variable {
	out := map[string]Variable{
		VarToken:                              {Value: p.GitHubToken, IsSecret: true},
		VarJob:                                {Value: job.ID},
		VarResults:                            {Value: p.ResultsURL},
		VarTimeout:                            {Value: formatNumber(job.Timeout.Minutes())},
		VarContainerHooks:                     {Value: "true"},
		"system.culture":                      {Value: "en-US"},
		"system.runnerEnvironment":            {Value: "self-hosted"},
		"DistributedTask.EnhancedAnnotations": {Value: "true"},
	}
	if job.Def.Services != nil {
		out[VarServiceCommand] = Variable{Value: "true"}
	}
	for name, value := range map[string]string{VarLaunch: p.LaunchURL, VarOrchestration: p.OrchestrationID, VarRunnerGroup: p.RunnerGroup} {
		if value != "" {
			out[name] = Variable{Value: value}
		}
	}
	for name, value := range p.Variables {
		out[name] = Variable{Value: value}
	}
	for name, value := range p.Secrets {
		out[name] = Variable{Value: value, IsSecret: true}
	}
	return out
}

func (m *Message) addDefinition(def *JobDef, p MessageParams) error {
	for _, env := range []Env{def.workflow.Env, def.Env} {
		t, err := env.token()
		if err != nil {
			return err
		}
		if t != nil {
			m.EnvironmentVariables = append(m.EnvironmentVariables, *t)
		}
	}
	for _, d := range []Defaults{def.workflow.Defaults, def.Defaults} {
		run, err := mappingToken(present(Pair{"shell", d.Shell}, Pair{"working-directory", d.WorkingDirectory}))
		if err != nil {
			return err
		}
		if len(run.Pairs) > 0 {
			m.Defaults = append(m.Defaults, Token{Kind: TokenMapping, Pairs: []TokenPair{{Token{Text: "run"}, run}}})
		}
	}
	if len(def.Outputs) > 0 {
		outputs, err := mappingToken(def.Outputs)
		if err != nil {
			return err
		}
		m.JobOutputs = &outputs
	}
	m.JobContainer, m.JobServiceContainers = def.Container, def.Services
	names := newStepNames(def.Steps)
	for i, step := range def.Steps {
		s, err := stepMessage(step, names.of(step), i, p)
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		m.Steps = append(m.Steps, s)
	}
	return nil
}

func present(pairs ...Pair) []Pair {
	var out []Pair
	for _, p := range pairs {
		if p.Value != "" {
			out = append(out, p)
		}
	}
	return out
}

// token is nil for an empty block.
func (e Env) token() (*Token, error) {
	if e.Expr != "" {
		t, err := TextToken(strings.TrimSpace(e.Expr))
		return &t, err
	}
	if len(e.Pairs) == 0 {
		return nil, nil
	}
	t, err := mappingToken(e.Pairs)
	return &t, err
}

func optional(text string, token func(string) (Token, error)) (*Token, error) {
	if text == "" {
		return nil, nil
	}
	t, err := token(text)
	return &t, err
}

// ParseJobMessage reads a job message. The error wraps [ErrMessage].
func ParseJobMessage(data []byte) (*Message, error) {
	var m Message
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if m.JobID == "" || m.Plan.PlanID == "" {
		return nil, fmt.Errorf("%w: it names no job or no plan", ErrMessage)
	}
	return &m, nil
}

// Endpoint finds a service by name.
func (m *Message) Endpoint(name string) (Endpoint, bool) {
	for _, e := range m.Resources.Endpoints {
		if strings.EqualFold(e.Name, name) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Contexts are the message's contexts in one object.
func (m *Message) Contexts() *Object {
	out := NewObject()
	for _, name := range sortedKeys(m.ContextData) {
		out.Set(name, m.ContextData[name].Value)
	}
	return out
}

// ConclusionFromResult translates the result words that runners send to completejob, in any case.
func ConclusionFromResult(result string) (Conclusion, bool) {
	switch strings.ToLower(result) {
	case "succeeded", "succeededwithissues", "success":
		return Success, true
	case "failed", "failure", "abandoned":
		return Failure, true
	case "canceled", "cancelled":
		return Cancelled, true
	case "skipped":
		return Skipped, true
	}
	return "", false
}

// Minutes reads a number of minutes from an evaluated timeout; ok is false for none, zero or nonsense.
func Minutes(v Value) (minutes float64, ok bool) {
	if v == nil || v == "" {
		return 0, false
	}
	n := toNumber(v)
	return n, !math.IsNaN(n) && n > 0 && n < 1e6
}
