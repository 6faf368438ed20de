package onebox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
)

// startInfrastructure starts the database and the control plane side by side, and keeps both running.
func (b *Box) startInfrastructure(ctx context.Context) error {
	audit, err := b.auditFlags()
	if err != nil {
		return err
	}
	var fromPlane error
	var starting sync.WaitGroup
	// A database that cannot start fails at once, and does not wait for the control plane.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	starting.Go(func() {
		start := controlplane.Start
		if b.opts.Containers {
			start = b.startContainers
		}
		b.plane, fromPlane = start(ctx, controlplane.Options{
			AssetsDir: b.opts.Assets, StateDir: b.layout.controlPlane(), Log: b.log, FastUnsafe: b.opts.FastUnsafe,
			ExtraArgs: map[controlplane.Component][]string{controlplane.APIServer: audit},
		})
	})
	fromDatabase := b.startDatabase(ctx)
	if fromDatabase != nil {
		cancel()
	}
	starting.Wait()
	if fromDatabase != nil {
		return fromDatabase // the control plane's error, if any, is only that it was called off
	}
	if fromPlane != nil {
		return fmt.Errorf("starting the control plane: %w", fromPlane)
	}
	for _, component := range controlplane.Components() {
		pid := b.plane.Pids()[component]
		if err := b.record.add(string(component), pid); err != nil {
			return err
		}
		b.report(Event{Kind: EventStarted, Part: string(component), PID: pid, Log: b.plane.LogPath(component),
			Message: fmt.Sprintf("%-14s pid %d", shortName(component), pid)})
	}
	b.watchers.Go(func() { b.watchPlane(b.ctx) })
	return nil
}

// auditPolicy names who asked for what, without what was sent or answered: no Secret's content is in it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ['system:serviceaccounts:%s', 'system:nodes']
  - level: None
`

// auditFlags are the API server's, if an audit log is wanted.
func (b *Box) auditFlags() ([]string, error) {
	if b.opts.AuditLog == "" {
		return nil, nil
	}
	path, err := filepath.Abs(b.opts.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("resolving --audit-log: %w", err)
	}
	policy := b.layout.auditPolicy()
	if err := os.MkdirAll(filepath.Dir(policy), 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of the audit policy: %w", err)
	}
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, SystemNamespace), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + path}, nil
}

func shortName(component controlplane.Component) string {
	if component == controlplane.ControllerManager {
		return "kube-ctrl-mgr"
	}
	return string(component)
}

// watchPlane restarts components of the control plane that died.
func (b *Box) watchPlane(ctx context.Context) {
	tick := time.NewTicker(time.Second) // the control plane tells the first end only
	defer tick.Stop()
	pause := map[controlplane.Component]time.Duration{}
	due := map[controlplane.Component]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pids := b.plane.Pids()
		for _, component := range controlplane.Components() {
			if pids[component] != 0 || b.opts.Now().Before(due[component]) {
				continue
			}
			ran := b.opts.Now().Sub(due[component])
			pause[component] = nextBackoff(pause[component], ran)
			b.report(Event{Kind: EventEnded, Part: string(component), Log: b.plane.LogPath(component),
				Message: fmt.Sprintf("%s died; restarting. See its log: %s", component, b.plane.LogPath(component))})
			err := b.plane.StartComponent(ctx, component)
			pid := b.plane.Pids()[component]
			if err == nil {
				err = b.record.add(string(component), pid)
			}
			switch {
			case err == nil:
				b.report(Event{Kind: EventStarted, Part: string(component), PID: pid, Log: b.plane.LogPath(component),
					Message: fmt.Sprintf("%s restarted (pid %d)", component, pid)})
			case ctx.Err() == nil:
				b.report(Event{Kind: EventProblem, Part: string(component), Message: err.Error()})
			}
			due[component] = b.opts.Now().Add(pause[component])
		}
	}
}

// database is the private PostgreSQL, kept running; nil and the zero value stand for an external one.
type database struct {
	options postgres.Options
	record  *record
	report  func(Event)

	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	server *postgres.Server
}

func (b *Box) startDatabase(ctx context.Context) error {
	b.database = &database{record: b.record, report: b.report}
	if b.opts.DatabaseURL != "" {
		b.report(Event{Kind: EventNote, Part: partPostgres, Message: "PostgreSQL: the one of BULLPEN_DATABASE_URL"})
		return writePrivate(b.layout.secret("database-url"), []byte(b.opts.DatabaseURL+"\n"))
	}
	d := b.database
	d.options = postgres.Options{Dir: b.layout.postgres(), FastUnsafe: b.opts.FastUnsafe, Log: b.log}
	if err := d.start(ctx); err != nil {
		return err
	}
	var keep context.Context
	keep, d.cancel = context.WithCancel(b.ctx)
	d.ended = make(chan struct{})
	go func() {
		defer close(d.ended)
		d.keep(keep)
	}()
	b.report(Event{Kind: EventStarted, Part: partPostgres, PID: d.pid(), Log: d.server.LogFile(),
		Message: fmt.Sprintf("%-14s pid %d", partPostgres, d.pid())})
	return writePrivate(b.layout.secret("database-url"), []byte(d.server.URL()+"\n"))
}

func (d *database) start(ctx context.Context) error {
	if d.options.Log == nil {
		d.options.Log = slog.New(slog.DiscardHandler)
	}
	server, err := postgres.Start(ctx, d.options)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.server = server
	d.mu.Unlock()
	return d.record.add(partPostgres, server.PID())
}

// keep restarts the database when it dies. Its address and password stay the same.
func (d *database) keep(ctx context.Context) {
	var pause time.Duration
	for {
		d.mu.Lock()
		server := d.server
		d.mu.Unlock()
		since := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-server.Done():
		}
		pause = nextBackoff(pause, time.Since(since))
		d.report(Event{Kind: EventEnded, Part: partPostgres, PID: server.PID(), Log: server.LogFile(),
			Message: fmt.Sprintf("PostgreSQL (pid %d) died; restarting in %s. See its log: %s", server.PID(), pause, server.LogFile())})
		_ = server.Stop(ctx) // releases its directory: the process has exited
		for {
			if !waitFor(ctx, pause) {
				return
			}
			err := d.start(ctx)
			if err == nil {
				d.report(Event{Kind: EventStarted, Part: partPostgres, PID: d.pid(), Log: server.LogFile(),
					Message: fmt.Sprintf("PostgreSQL restarted (pid %d)", d.pid())})
				break
			}
			pause = nextBackoff(pause, 0)
			if ctx.Err() == nil {
				d.report(Event{Kind: EventProblem, Part: partPostgres, Message: fmt.Sprintf("%v; retrying in %s", err, pause)})
			}
		}
	}
}

func (d *database) pid() int {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		return 0
	}
	return d.server.PID()
}

func (d *database) stop(ctx context.Context) error {
	if d == nil || d.cancel == nil {
		return nil
	}
	d.cancel()
	<-d.ended
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.server.Stop(ctx); err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	return nil
}
