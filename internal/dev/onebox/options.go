package onebox

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
)

// Options of Start.
type Options struct {
	// StateDir is the state directory. Required.
	StateDir string
	// Binary is the executable that holds every part but the agent of runner pods. Default: this one. bullpen-agent must be beside it.
	Binary string
	// Assets is the directory of the control plane's executables. Default: found, see package assets.
	Assets string
	// Containers runs runners in containers, on a kubelet in namespaces of this machine (Linux, root), instead of as processes.
	Containers bool
	// Macs starts a second node agent, whose runners are macOS virtual machines, or what a fake of Tart makes of them.
	Macs bool
	// MacHosts has the controller prepare the Macs that MacHosts name, which are models: with their files in this directory. Empty: none are prepared.
	MacHosts string
	// Pools are applied once everything is up; LoadPools reads them.
	Pools []*unstructured.Unstructured
	// App is a real GitHub App; nil starts the stand-in.
	App *App
	// Poll has the server poll GitHub for webhooks, so GitHub need not reach this machine.
	Poll bool
	// DatabaseURL is a database to use instead of a private PostgreSQL; ListenDatabaseURL bypasses a connection pooler.
	DatabaseURL, ListenDatabaseURL string
	// Listen and GitHubListen are addresses to use instead of free ports: the server's for webhooks, and the stand-in's.
	Listen, GitHubListen string
	// SecretsFile has the secrets of workflows at the stand-in; see standin.ParseSecrets. Empty: there are none.
	SecretsFile string
	// Ungated does not enforce network policies between runners and the server.
	Ungated bool
	// AuditLog is a file to which the API server writes who asked it for what (audit.k8s.io, one JSON object a line), for requests
	// of the parts and of nodes. It grows for as long as this runs. Empty: nothing is written.
	AuditLog string
	// TraceEndpoint is an OpenTelemetry collector that the server sends jobs' traces to, and TraceLink the page that shows one; see the
	// server's flags. Empty: nothing is traced.
	TraceEndpoint, TraceLink string
	// Drain has Up wait for running jobs before it stops everything.
	Drain bool
	// FastUnsafe gives up durability for speed, for state that is thrown away.
	FastUnsafe bool
	// StartTimeout bounds the start. Default: three minutes, and five with Containers.
	StartTimeout time.Duration
	// Report receives events. Default: they are discarded.
	Report func(Event)
	// Now is the clock. Default time.Now.
	Now func() time.Time

	agent, nodeAssets string // found by withDefaults
}

// Check reports what is wrong with the options, or missing on this machine, and starts nothing.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	if o.StateDir == "" {
		return o, errors.New("missing flag --state-dir")
	}
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("finding this executable: %w", err)
		}
		o.Binary = self
	}
	if err := checkBinaryPath(o.Binary); err != nil {
		return o, err
	}
	var err error
	if o.agent, err = findAgent(o.Binary); err != nil {
		return o, err
	}
	if err := checkApp(o.App, o.Poll); err != nil {
		return o, err
	}
	if o.Containers {
		if err := o.checkContainers(); err != nil {
			return o, err
		}
	}
	found, err := controlplane.Find(assets.Options{Dir: o.Assets})
	if err != nil {
		return o, err
	}
	o.Assets = found
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 3 * time.Minute
		if o.Containers {
			o.StartTimeout = 5 * time.Minute
		}
	}
	return o, nil
}
