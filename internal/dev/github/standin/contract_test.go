package standin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// The answers of the runner protocol as GitHub's runner declares them: the data contracts of actions/runner 2.336.0 (src/Sdk, src/Runner.*),
// by member. An answer with any other member does not decode.

// guid is a GUID that is not zero.
type guid string

func (g *guid) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	id, err := uuid.Parse(text)
	if err != nil || id == uuid.Nil {
		return fmt.Errorf("%q is no GUID", text)
	}
	*g = guid(text)
	return nil
}

// address is an absolute URL.
type address string

func (a *address) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if u, err := url.Parse(text); err != nil || u.Host == "" || !strings.Contains("http https ws wss", u.Scheme) {
		return fmt.Errorf("%q is no address", text)
	}
	*a = address(text)
	return nil
}

// token is a JSON web token with the claims that the runner, and the actions toolkit, read of a job's.
type token string

func (k *token) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	claims, err := claimsOf(text)
	if err != nil {
		return err
	}
	if claims["orch_id"] == nil || !strings.HasPrefix(fmt.Sprint(claims["scp"]), "Actions.Results:") {
		return fmt.Errorf("the token has no orch_id, or no scope of the results service: %v", claims)
	}
	*k = token(text)
	return nil
}

// wide is a 64-bit number, which Twirp writes as a string.
type wide int64

func (w *wide) UnmarshalJSON(data []byte) error {
	_, err := fmt.Sscan(strings.Trim(string(data), `"`), (*int64)(w))
	return err
}

type oauthToken struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope"`
}

type locationData struct {
	InstanceID     guid   `json:"instanceId"`
	DeploymentType string `json:"deploymentType"`
	Location       struct {
		ServiceOwner uuid.UUID `json:"serviceOwner"`
		LastChange   int       `json:"lastChangeId"`
		LastChange64 int64     `json:"lastChangeId64"`
		Definitions  []struct {
			ServiceType       string    `json:"serviceType"`
			Identifier        guid      `json:"identifier"`
			DisplayName       string    `json:"displayName"`
			Description       string    `json:"description"`
			RelativeToSetting string    `json:"relativeToSetting"`
			RelativePath      string    `json:"relativePath"`
			ServiceOwner      uuid.UUID `json:"serviceOwner"`
			ResourceVersion   int       `json:"resourceVersion"`
			MinVersion        string    `json:"minVersion"`
			MaxVersion        string    `json:"maxVersion"`
			ReleasedVersion   string    `json:"releasedVersion"`
		} `json:"serviceDefinitions"`
	} `json:"locationServiceData"`
}

type agentSession struct {
	SessionID         guid   `json:"sessionId"`
	OwnerName         string `json:"ownerName"`
	UseFipsEncryption bool   `json:"useFipsEncryption"`
	Agent             struct {
		ID            int64  `json:"id"`
		Name          string `json:"name"`
		Version       string `json:"version"`
		OSDescription string `json:"osDescription"`
		Ephemeral     *bool  `json:"ephemeral"`
	} `json:"agent"`
	EncryptionKey struct {
		Encrypted bool   `json:"encrypted"`
		Value     []byte `json:"value"`
	} `json:"encryptionKey"`
}

type agentMessage struct {
	ID   int64  `json:"messageId"`
	Type string `json:"messageType"`
	IV   []byte `json:"iv"`
	Body string `json:"body"`
}

type jobRequestRef struct {
	ID                guid    `json:"id"`
	RunnerRequestID   guid    `json:"runner_request_id"`
	ShouldAcknowledge bool    `json:"should_acknowledge"`
	RunServiceURL     address `json:"run_service_url"`
	BillingOwnerID    string  `json:"billing_owner_id"`
}

type jobCancelMessage struct {
	JobID   guid   `json:"jobId"`
	Timeout string `json:"timeout"` // a TimeSpan
}

// templateToken is a string, or an object whose members depend on its type.
type templateToken = json.RawMessage

type jobMessage struct {
	MessageType string `json:"messageType"`
	Plan        struct {
		ScopeIdentifier uuid.UUID `json:"scopeIdentifier"`
		PlanType        string    `json:"planType"`
		Version         int       `json:"version"`
		PlanID          guid      `json:"planId"`
	} `json:"plan"`
	Timeline struct {
		ID       guid `json:"id"`
		ChangeID int  `json:"changeId"`
	} `json:"timeline"`
	JobID          guid          `json:"jobId"`
	JobDisplayName string        `json:"jobDisplayName"`
	JobName        string        `json:"jobName"`
	JobOutputs     templateToken `json:"jobOutputs"`
	RequestID      int64         `json:"requestId"`
	LockedUntil    string        `json:"lockedUntil"`
	Resources      struct {
		Endpoints []struct {
			Name          string  `json:"name"`
			URL           address `json:"url"`
			Authorization struct {
				Scheme     string `json:"scheme"`
				Parameters struct {
					AccessToken token
				} `json:"parameters"`
			} `json:"authorization"`
			Data struct {
				ResultsServiceURL  address `json:"ResultsServiceUrl"`
				FeedStreamURL      address `json:"FeedStreamUrl"`
				CacheServerURL     address `json:"CacheServerUrl"`
				GenerateIDTokenURL address `json:"GenerateIdTokenUrl"`
			} `json:"data"`
			IsShared bool `json:"isShared"`
			IsReady  bool `json:"isReady"`
		} `json:"endpoints"`
	} `json:"resources"`
	ContextData map[string]json.RawMessage `json:"contextData"`
	Workspace   struct {
		Clean string `json:"clean"`
	} `json:"workspace"`
	Mask []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"mask"`
	EnvironmentVariables []templateToken `json:"environmentVariables"`
	Defaults             []templateToken `json:"defaults"`
	Variables            map[string]struct {
		Value    string `json:"value"`
		IsSecret bool   `json:"isSecret"`
	} `json:"variables"`
	Steps []struct {
		Type      string `json:"type"`
		Reference struct {
			Type string `json:"type"`
		} `json:"reference"`
		ID               guid          `json:"id"`
		Name             string        `json:"name"`
		ContextName      string        `json:"contextName"`
		DisplayNameToken templateToken `json:"displayNameToken"`
		Condition        string        `json:"condition"`
		ContinueOnError  templateToken `json:"continueOnError"`
		TimeoutInMinutes templateToken `json:"timeoutInMinutes"`
		Environment      templateToken `json:"environment"`
		Inputs           templateToken `json:"inputs"`
	} `json:"steps"`
	FileTable []string `json:"fileTable"`
}

// runnerVariables are the names of variables that GitHub's runner 2.336.0 looks for.
var runnerVariables = []string{
	"system.github.token", "system.github.job", "system.github.results_endpoint", "system.github.launch_endpoint", "system.orchestrationId",
	"system.runnerGroupName", "system.runnerEnvironment", "system.culture", "DistributedTask.AllowRunnerContainerHooks",
	"DistributedTask.EnhancedAnnotations",
}

type renewedJob struct {
	LockedUntil time.Time `json:"lockedUntil"`
}

type signedLogs struct {
	LogsURL         address `json:"logs_url"`
	BlobStorageType string  `json:"blob_storage_type"`
	SoftSizeLimit   wide    `json:"soft_size_limit"`
}

type signedSummary struct {
	SummaryURL      address `json:"summary_url"`
	BlobStorageType string  `json:"blob_storage_type"`
	SoftSizeLimit   wide    `json:"soft_size_limit"`
}

type metadata struct {
	OK bool `json:"ok"`
}

type brokerError struct {
	Source       string `json:"source"`
	ErrorKind    string `json:"errorKind"`
	StatusCode   int    `json:"statusCode"`
	ErrorMessage string `json:"errorMessage"`
}

type unresolvedActions struct {
	Errors map[string]struct {
		Message string `json:"message"`
	} `json:"errors"`
}

type gitHubAuth struct {
	URL         address `json:"url"`
	TokenSchema string  `json:"token_schema"`
	Token       string  `json:"token"`
	UseV2Flow   bool    `json:"use_v2_flow"`
}

type groupList struct {
	TotalCount int `json:"total_count"`
	Groups     []struct {
		ID         int64  `json:"id"`
		Name       string `json:"name"`
		Visibility string `json:"visibility"` // of the REST API
		Default    bool   `json:"default"`
		Inherited  bool   `json:"inherited"` // of the REST API, as those below

		AllowsPublicRepositories bool     `json:"allows_public_repositories"`
		RestrictedToWorkflows    bool     `json:"restricted_to_workflows"`
		SelectedWorkflows        []string `json:"selected_workflows"`
		WorkflowsReadOnly        bool     `json:"workflow_restrictions_read_only"`
		RunnersURL               string   `json:"runners_url"`
		SelectedRepositoriesURL  string   `json:"selected_repositories_url"`
	} `json:"runner_groups"`
}

type runnerList struct {
	TotalCount int               `json:"total_count"`
	Runners    []json.RawMessage `json:"runners"`
}

type registeredRunner struct {
	ID            int64  `json:"id"`
	Name          string `json:"name"`
	Authorization struct {
		AuthorizationURL address `json:"authorization_url"`
		ServerURL        address `json:"server_url"`
		ClientID         guid    `json:"client_id"`
	} `json:"authorization"`
}

// contracts says what a route answers with, by status. A route is a method and a path of which some parts are left out.
var contracts = map[string]map[int]func() any{
	"POST /_services/token":                                  {200: of[oauthToken]},
	"GET /_services/pipelines/_apis/connectionData":          {200: of[locationData]},
	"POST /_services/broker/session":                         {200: of[agentSession]},
	"GET /_services/broker/message":                          {202: nil, 200: of[agentMessage], 401: of[brokerError], 403: of[brokerError], 404: of[brokerError]},
	"POST /_services/run/acquirejob":                         {200: of[jobMessage]},
	"POST /_services/run/renewjob":                           {200: of[renewedJob]},
	"POST Receiver/GetStepLogsSignedBlobURL":                 {200: of[signedLogs]},
	"POST Receiver/GetJobLogsSignedBlobURL":                  {200: of[signedLogs]},
	"POST Receiver/GetStepSummarySignedBlobURL":              {200: of[signedSummary]},
	"POST Receiver/CreateStepLogsMetadata":                   {200: of[metadata]},
	"POST Receiver/CreateJobLogsMetadata":                    {200: of[metadata]},
	"POST Receiver/CreateStepSummaryMetadata":                {200: of[metadata]},
	"POST WorkflowStepUpdateService/WorkflowStepsUpdate":     {200: of[metadata]},
	"POST runnerresolve/actions":                             {422: of[unresolvedActions]},
	"POST /api/v3/actions/runner-registration":               {200: of[gitHubAuth]},
	"GET /api/v3/repos/acme/app/actions/runner-groups":       {200: of[groupList]},
	"GET /api/v3/repos/acme/app/actions/runners":             {200: of[runnerList]},
	"POST /api/v3/actions/runners/register":                  {201: of[registeredRunner]},
	"POST /_services/broker/acknowledge":                     {200: nil},
	"POST /_services/run/completejob":                        {200: nil},
	"DELETE /_services/broker/session":                       {204: nil},
	"PUT blobs":                                              {201: nil},
	"DELETE /api/v3/repos/acme/app/actions/runners/{runner}": {204: nil},
}

func of[T any]() any { return new(T) }

// decodeStrictly reads an answer as GitHub's runner declares it.
func decodeStrictly(t *testing.T, route string, status int, body []byte) any {
	t.Helper()
	by, known := contracts[route]
	require.True(t, known, "%s: no contract", route)
	contract, known := by[status]
	require.True(t, known, "%s: nothing is declared for the answer %d: %s", route, status, body)
	if contract == nil {
		require.Empty(t, body, route)
		return nil
	}
	into := contract()
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(into), "%s: %s", route, body)
	_, err := decoder.Token()
	require.ErrorIs(t, err, io.EOF, route)
	return into
}
