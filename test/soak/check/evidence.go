package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Names of the files in an evidence directory.
const (
	FileGitHub    = "github.json"
	FileCalls     = "github-calls.jsonl"
	FileHistory   = "history.jsonl"
	FileRows      = "rows.json"
	FileAudit     = "audit.log"
	FileMachines  = "machines.jsonl"
	FilePods      = "pods.jsonl"
	FileDeeds     = "deeds.jsonl"
	FileArguments = "arguments.txt"
	FileFinal     = "final.json"
	FileSecrets   = "secrets.jsonl"
)

// Job is a job as GitHub saw it.
type Job struct {
	ID           int64      `json:"id"`
	Name         string     `json:"name"`
	Repo         string     `json:"repo"`
	Status       string     `json:"status"`
	Conclusion   string     `json:"conclusion"`
	Reason       string     `json:"reason"`
	QueuedAt     *time.Time `json:"queued_at"`
	StartedAt    *time.Time `json:"started_at"`
	CompletedAt  *time.Time `json:"completed_at"`
	RunnerName   string     `json:"runner_name"`
	Acquisitions int        `json:"acquisitions"`
	AcquiredBy   []string   `json:"acquired_by"`
	Lost         bool       `json:"lost"`
	Given        []Given    `json:"given"`
}

// Given is one time that GitHub gave a job to a runner.
type Given struct {
	Runner     string     `json:"runner"`
	AssignedAt time.Time  `json:"assigned_at"`
	AcquiredAt *time.Time `json:"acquired_at"`
	EndedAt    *time.Time `json:"ended_at"`
	End        string     `json:"end"`
}

// Runner is a registration that GitHub has or had.
type Runner struct {
	Name         string     `json:"name"`
	RegisteredAt time.Time  `json:"registered_at"`
	OnlineAt     *time.Time `json:"online_at"`
	RemovedAt    *time.Time `json:"removed_at"`
	RemovedBy    string     `json:"removed_by"`
	RemovedBusy  int64      `json:"removed_busy"`
	Ran          []int64    `json:"ran"`
}

// GitHub is its whole ledger.
type GitHub struct {
	Jobs    []Job    `json:"jobs"`
	Runners []Runner `json:"runners"`
}

// GitHubCall is a mint or a removal.
type GitHubCall struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Status int       `json:"status"`
	Runner string    `json:"runner,omitempty"`
}

// Change is one row of Postgres' history. Op is INSERT, UPDATE, DELETE, ROW (it was there when the history began) or
// SNAPSHOT (the history begins, again).
type Change struct {
	ID    string          `json:"id"`
	At    time.Time       `json:"at"`
	Table string          `json:"table"`
	Op    string          `json:"op"`
	Old   json.RawMessage `json:"old,omitempty"`
	New   json.RawMessage `json:"new,omitempty"`
}

// Claim is what the checker reads of a row of runner_claims.
type Claim struct {
	PodUID     string  `json:"pod_uid"`
	PodName    string  `json:"pod_name"`
	Pool       string  `json:"pool"`
	State      string  `json:"state"`
	Generation int64   `json:"generation"`
	Account    *int64  `json:"account_id"`
	Platform   string  `json:"platform"`
	MilliCPU   int64   `json:"milli_cpu"`
	MemoryMB   int64   `json:"memory_mb"`
	JobID      *int64  `json:"job_id"`
	RunnerName string  `json:"runner_name"`
	Proof      *string `json:"proof"`
}

// Live reports whether the claim is charged.
func (c Claim) Live() bool {
	return c.State == "claimed" || c.State == "minted" || c.State == "executing"
}

// Deed is something that the soak did.
type Deed struct {
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"`
	Round  int       `json:"round"`
	Step   int       `json:"step,omitempty"`
	Kind   string    `json:"kind"`
	Target string    `json:"target"`
	Detail string    `json:"detail,omitempty"`
	Error  string    `json:"error,omitempty"`
	// Jobs were cancelled by it; Pods were deleted by it, on purpose.
	Jobs []int64  `json:"jobs,omitempty"`
	Pods []string `json:"pods,omitempty"`
	// Machine was switched off by it, with everything on it.
	Machine string `json:"machine,omitempty"`
}

// MachineRecord is a line of a machine's diary.
type MachineRecord struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine"`
	Event   string    `json:"event"` // on, start, end
	Pod     string    `json:"pod"`
	UID     string    `json:"uid"`
	Code    int32     `json:"code"`
	Killed  bool      `json:"killed"`
}

// PodRecord is a difference between two readings of the cluster's pods.
type PodRecord struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"` // there, gone; all: the first look of a witness, with everything in There
	Pod   string    `json:"pod,omitempty"`
	UID   string    `json:"uid,omitempty"`
	There []string  `json:"there,omitempty"` // UIDs
}

// Final is what was left when everything that had to go had had its time.
type Final struct {
	At time.Time `json:"at"`
	// Pods, ServiceAccounts and Pools of runners that were still there after the pools were deleted.
	Pods            []Left `json:"pods"`
	ServiceAccounts []Left `json:"service_accounts"`
	Pools           []Left `json:"pools"`
	// Processes that were still there after everything was stopped.
	Processes []string `json:"processes"`
}

// Left is one thing that was left.
type Left struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	Why  string `json:"why"` // what could be seen of it
}

// Secret is what must be seen nowhere.
type Secret struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Evidence is what the witnesses say. Big files are read when they are needed.
type Evidence struct {
	Dir      string
	GitHub   GitHub
	Calls    []GitHubCall
	Changes  []Change
	Rows     map[string][]json.RawMessage
	Audit    []AuditEvent
	Machines []MachineRecord
	Pods     []PodRecord
	Deeds    []Deed
	Final    Final
	Secrets  []Secret
	// Texts are files that must hold no secret.
	Texts []string
}

// Load reads an evidence directory, and finds what else must hold no secret: the files that the patterns name.
func Load(dir string, texts ...string) (*Evidence, error) {
	e := &Evidence{Dir: dir}
	if err := errors.Join(
		readJSON(filepath.Join(dir, FileGitHub), &e.GitHub),
		readJSON(filepath.Join(dir, FileRows), &e.Rows),
		readJSON(filepath.Join(dir, FileFinal), &e.Final),
		readLines(filepath.Join(dir, FileCalls), &e.Calls),
		readLines(filepath.Join(dir, FileHistory), &e.Changes),
		readLines(filepath.Join(dir, FileMachines), &e.Machines),
		readLines(filepath.Join(dir, FilePods), &e.Pods),
		readLines(filepath.Join(dir, FileDeeds), &e.Deeds),
		readLines(filepath.Join(dir, FileSecrets), &e.Secrets),
	); err != nil {
		return nil, err
	}
	var err error
	if e.Audit, err = readAudit(filepath.Join(dir, FileAudit)); err != nil {
		return nil, err
	}
	for _, name := range []string{FileGitHub, FileCalls, FileHistory, FileRows, FileAudit, FileMachines, FilePods, FileDeeds, FileArguments, FileFinal} {
		e.Texts = append(e.Texts, filepath.Join(dir, name))
	}
	for _, pattern := range texts {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("finding %s: %w", pattern, err)
		}
		e.Texts = append(e.Texts, found...)
	}
	return e, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading evidence: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading evidence %s: %w", path, err)
	}
	return nil
}

// maxLine bounds a line of evidence: an audit event of a large object.
const maxLine = 8 << 20

// readLines reads one value a line. A witness that was killed may have left half a last line, which is ignored; any
// other line that cannot be read is an error. A file that was not written is empty.
func readLines[T any](path string, into *[]T) error {
	return eachLine(path, func(line []byte, last bool) error {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			if last {
				return nil
			}
			return fmt.Errorf("reading evidence %s: %w", path, err)
		}
		*into = append(*into, v)
		return nil
	})
}

func eachLine(path string, do func(line []byte, last bool) error) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading evidence: %w", err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 0, 1<<16), maxLine)
	var held []byte
	have := false
	for scanner.Scan() {
		if have {
			if err := do(held, false); err != nil {
				return err
			}
		}
		held, have = append(held[:0], scanner.Bytes()...), len(strings.TrimSpace(scanner.Text())) > 0
	}
	if have {
		if err := do(held, true); err != nil {
			return err
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("reading evidence %s: %w", path, err)
	}
	return nil
}
