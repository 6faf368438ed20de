package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// broker is the service that hands out messages.
type broker struct {
	caller
	config    *Config
	version   string
	sessionID string
}

// message is one message of the broker.
type message struct {
	ID   int64  `json:"messageId"`
	Type string `json:"messageType"`
	Body string `json:"body"`
}

// Types of messages; others are ignored.
const (
	messageJob          = "RunnerJobRequest"
	messageCancel       = "JobCancellation"
	messageTokenRefresh = "ForceTokenRefresh"
)

// jobRef is the body of a job message: the URL of the job.
type jobRef struct {
	RunnerRequestID   string `json:"runner_request_id"`
	RunServiceURL     string `json:"run_service_url"`
	BillingOwnerID    string `json:"billing_owner_id"`
	ShouldAcknowledge bool   `json:"should_acknowledge"`
}

// cancelOrder is the body of a cancellation. Timeout is how long the job's remaining steps may take, as .NET writes
// it ("00:05:00").
type cancelOrder struct {
	JobID   string `json:"jobId"`
	Timeout string `json:"timeout"`
}

type session struct {
	SessionID         string `json:"sessionId"`
	OwnerName         string `json:"ownerName"`
	Agent             agent  `json:"agent"`
	UseFipsEncryption bool   `json:"useFipsEncryption"`
}

// agent is what a listener says of itself. It leaves to the service whether it is ephemeral.
type agent struct {
	ID                int64  `json:"id"`
	Name              string `json:"name"`
	Version           string `json:"version"`
	OSDescription     string `json:"osDescription"`
	Ephemeral         *bool  `json:"ephemeral"`
	Status            int    `json:"status"`
	ProvisioningState *int   `json:"provisioningState"`
}

// connections is how many connections to the tenant GitHub's listener opens before its session. Each asks first where things are.
const connections = 3

// connect asks the tenant of the old flow for its services, which the listener does although it goes to the broker for everything.
func (b *broker) connect(ctx context.Context) error {
	base := strings.TrimSuffix(b.config.ServerURL, "/")
	if base == "" || base == strings.TrimSuffix(b.config.ServerURLV2, "/") {
		return nil
	}
	var asking errgroup.Group
	for range connections {
		asking.Go(func() error {
			var answer struct {
				InstanceID uuid.UUID `json:"instanceId"`
			}
			anonymous := caller{http: b.http, auth: fixedToken("")}
			address := base + "/_apis/connectionData?connectOptions=1&lastChangeId=-1&lastChangeId64=-1"
			_, err := anonymous.call(ctx, "connecting to the service", http.MethodGet, address, nil, &answer, callTimeout)
			return err
		})
	}
	return asking.Wait()
}

func (b *broker) createSession(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "runner"
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	in := session{
		SessionID: uuid.Nil.String(), OwnerName: fmt.Sprintf("%s (PID: %d)", host, os.Getpid()),
		Agent: agent{ID: b.config.AgentID, Name: b.config.AgentName, Version: b.version, OSDescription: runtime.GOOS + " " + runtime.GOARCH},
	}
	var out session
	if _, err := b.call(ctx, "creating a session", http.MethodPost, join(b.config.ServerURLV2, "session"), in, &out, callTimeout); err != nil {
		return err
	}
	if id, err := uuid.Parse(out.SessionID); err != nil || id == uuid.Nil {
		return fmt.Errorf("creating a session: the answer names none")
	}
	b.sessionID = out.SessionID
	return nil
}

func (b *broker) query(status string) url.Values {
	return url.Values{
		"sessionId": {b.sessionID}, "status": {status}, "runnerVersion": {b.version}, "os": {osName()}, "architecture": {archName()},
	}
}

// poll waits for a message; nil means that there was none for as long as the service holds a poll.
func (b *broker) poll(ctx context.Context, status string) (*message, error) {
	var m message
	query := b.query(status)
	query.Set("disableUpdate", strconv.FormatBool(b.config.DisableUpdate))
	address := join(b.config.ServerURLV2, "message") + "?" + query.Encode()
	if _, err := b.call(ctx, "waiting for a message", http.MethodGet, address, nil, &m, pollTimeout); err != nil {
		return nil, err
	}
	if m.Type == "" {
		return nil, nil
	}
	return &m, nil
}

func (b *broker) acknowledge(ctx context.Context, requestID string) error {
	in := map[string]string{"runnerRequestId": requestID}
	_, err := b.call(ctx, "acknowledging a job", http.MethodPost,
		join(b.config.ServerURLV2, "acknowledge")+"?"+b.query("Online").Encode(), in, nil, callTimeout)
	return err
}

func (b *broker) deleteSession(ctx context.Context) error {
	_, err := b.call(ctx, "deleting the session", http.MethodDelete, join(b.config.ServerURLV2, "session"), nil, nil, callTimeout)
	return err
}

func (m *message) jobRef() (jobRef, error) {
	var ref jobRef
	if err := json.Unmarshal([]byte(m.Body), &ref); err != nil || !webURL(ref.RunServiceURL) {
		return ref, fmt.Errorf("reading job message %d: it names no job or no run service", m.ID)
	}
	return ref, nil
}

func osName() string {
	switch runtime.GOOS {
	case "darwin":
		return "macOS"
	case "linux":
		return "Linux"
	}
	return runtime.GOOS
}

func archName() string {
	switch runtime.GOARCH {
	case "amd64":
		return "X64"
	case "arm64":
		return "ARM64"
	}
	return strings.ToUpper(runtime.GOARCH)
}
