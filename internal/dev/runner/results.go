package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// results is the Results service: the place for logs, summaries and the state of steps.
type results struct {
	caller
	url           string
	planID, jobID string
	now           func() time.Time
}

const (
	receiver    = "twirp/results.services.receiver.Receiver/"
	stepUpdates = "twirp/github.actions.results.api.v1.WorkflowStepUpdateService/WorkflowStepsUpdate"
	azureBlob   = "BLOB_STORAGE_TYPE_AZURE"
)

// The numbers that the Results service has for states and conclusions of steps.
var (
	stepStatus     = map[string]int{"in_progress": 3, "pending": 5, "completed": 6}
	stepConclusion = map[string]int{"success": 2, "failure": 3, "cancelled": 4, "skipped": 7}
)

// ids are in every request; step is empty for the job's own log.
func (s *results) ids(step string) map[string]any {
	in := map[string]any{"workflow_run_backend_id": s.planID, "workflow_job_run_backend_id": s.jobID}
	if step != "" {
		in["step_backend_id"] = step
	}
	return in
}

func (s *results) rpc(ctx context.Context, op, method string, in, out any) error {
	_, err := s.call(ctx, op, http.MethodPost, join(s.url, method), in, out, callTimeout)
	return err
}

// stamp is the service's way to write a time.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

type stepUpdate struct {
	ExternalID  string `json:"external_id"`
	Number      int    `json:"number"`
	Name        string `json:"name"`
	Status      int    `json:"status"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
	Conclusion  int    `json:"conclusion"`
}

func (s *results) updateSteps(ctx context.Context, order int, steps []stepUpdate) error {
	in := s.ids("")
	in["steps"], in["change_order"] = steps, order
	return s.rpc(ctx, "updating steps", stepUpdates, in, nil)
}

// chunk is a piece of a log on its way to the service.
type chunk struct {
	step        string // "" for the job's log
	data        []byte
	first, last bool
	lines       int64 // of the whole log, for the last chunk
}

func (s *results) uploadLog(ctx context.Context, c chunk) error {
	kind := "Job"
	if c.step != "" {
		kind = "Step"
	}
	var signed struct {
		LogsURL string `json:"logs_url"`
		Storage string `json:"blob_storage_type"`
	}
	if err := s.rpc(ctx, "asking where to put a log", receiver+"Get"+kind+"LogsSignedBlobURL", s.ids(c.step), &signed); err != nil {
		return err
	}
	if err := s.putLog(ctx, signed.LogsURL, signed.Storage, c); err != nil {
		return err
	}
	if !c.last {
		return nil
	}
	in := s.ids(c.step)
	in["uploaded_at"], in["line_count"] = stamp(s.now()), c.lines
	return s.rpc(ctx, "finishing a log", receiver+"Create"+kind+"LogsMetadata", in, nil)
}

// putLog writes a log that is one piece as a block blob, and others piece by piece as an append blob.
func (s *results) putLog(ctx context.Context, address, storage string, c chunk) error {
	if c.first && c.last {
		return s.put(ctx, address, c.data, storage, "x-ms-blob-type", "BlockBlob")
	}
	if c.first {
		if err := s.put(ctx, address, nil, storage, "x-ms-blob-type", "AppendBlob"); err != nil {
			return err
		}
	}
	mark := "?"
	if strings.Contains(address, "?") {
		mark = "&"
	}
	address += mark + "comp=appendblock"
	if c.last {
		address += "&seal=true"
	}
	return s.put(ctx, address, c.data, storage, "x-ms-blob-sealed", strconv.FormatBool(c.last))
}

// put stores a blob. Its address is the credential.
func (s *results) put(ctx context.Context, address string, data []byte, storage, header, value string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("storing a blob: its address is not usable")
	}
	if storage == azureBlob {
		req.Header.Set(header, value)
	}
	res, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("storing a blob: %w", withoutAddress(err))
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // so that the connection can be used again
	if res.StatusCode >= 300 {
		return &apiError{Op: "storing a blob", Status: res.StatusCode}
	}
	return nil
}

func (s *results) uploadSummary(ctx context.Context, step string, data []byte) error {
	var signed struct {
		SummaryURL string `json:"summary_url"`
		Storage    string `json:"blob_storage_type"`
	}
	if err := s.rpc(ctx, "asking where to put a summary", receiver+"GetStepSummarySignedBlobURL", s.ids(step), &signed); err != nil {
		return err
	}
	if err := s.put(ctx, signed.SummaryURL, data, signed.Storage, "x-ms-blob-type", "BlockBlob"); err != nil {
		return err
	}
	in := s.ids(step)
	in["uploaded_at"], in["size"] = stamp(s.now()), len(data)
	return s.rpc(ctx, "finishing a summary", receiver+"CreateStepSummaryMetadata", in, nil)
}
