package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
)

// Files of the state directory, for administrators of the host.
const (
	fileSocket = "agent.sock"  // serves requests while the agent runs
	fileReport = "report.json" // what it said last
)

// noteProblem keeps why the node could not be reported, and writes down what is known.
func (a *Agent) noteProblem(err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	a.nodeProblem.Store(&problem)
	if err := saveReport(filepath.Join(a.opts.StateDir, fileReport), a.Report()); err != nil {
		a.opts.Log.Debug("writing the agent's report", "error", err)
	}
}

func saveReport(path string, report Report) error {
	data, err := json.Marshal(report)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// serveReport answers `bullpen node status`. The socket is this user's alone, like the state directory. A host where it cannot be created
// (a path longer than some 100 characters) has none: the file has the same report, a little older.
func (a *Agent) serveReport(ctx context.Context) {
	path := filepath.Join(a.opts.StateDir, fileSocket)
	_ = os.Remove(path) // left by an earlier agent: the state directory is locked
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		a.opts.Log.Warn("cannot serve bullpen node status; it reads the agent's periodic report instead", "error", err)
		return
	}
	server := httpserver.New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.Report()) // who asked has gone
	}))
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		a.opts.Log.Warn("serving bullpen node status", "error", err)
	}
}

// ErrNoAgent reports that no node agent has ever used a state directory.
var ErrNoAgent = errors.New("no node agent has used this state directory")

// ReadReport asks the node agent that uses a state directory; running is false when none does, and the report is then the last one that an
// agent wrote to it. ErrNoAgent when there is none.
func ReadReport(ctx context.Context, stateDir string) (report Report, running bool, err error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(stateDir, fileSocket))
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/", nil)
	if err != nil {
		return report, false, err
	}
	if response, err := client.Do(request); err == nil {
		defer func() { _ = response.Body.Close() }()
		if err := json.NewDecoder(response.Body).Decode(&report); err != nil {
			return report, true, fmt.Errorf("reading the node agent's response: %w", err)
		}
		return report, true, nil
	}
	data, err := os.ReadFile(filepath.Join(stateDir, fileReport))
	if errors.Is(err, fs.ErrNotExist) {
		return report, false, fmt.Errorf("%s: %w", stateDir, ErrNoAgent)
	}
	if err != nil {
		return report, false, fmt.Errorf("reading what the node agent said last: %w", err)
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return report, false, fmt.Errorf("reading what the node agent said last: %w", err)
	}
	return report, false, nil
}
