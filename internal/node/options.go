package node

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// LabelSandbox says on a node which back end it runs pods in.
const LabelSandbox = "bullpen.dev/sandbox"

// Options configure an Agent.
type Options struct {
	// Name is the node's name. Required; the client configuration's identity must be system:node:Name.
	Name string
	// Config is how to reach the API server. Required. The agent makes several clients of it.
	Config *rest.Config
	// Sandbox runs the containers, SandboxName is its name in the node's LabelSandbox. Required.
	Sandbox     sandbox.Sandbox
	SandboxName string
	// StateDir holds the pods' volumes. Required, absolute.
	StateDir string
	// Capacity is what the node offers: cpu, memory, pods, ephemeral-storage. Required.
	Capacity corev1.ResourceList
	// Labels and Taints are put on the node. Taints only when the node is registered: a node may not change its own later.
	Labels map[string]string
	Taints []corev1.Taint
	// IP is the node's address, and that of pods to which the sandbox gives none of their own. Default 127.0.0.1, which
	// serves one machine.
	IP string
	// KubeletPort is where logs and commands are served at IP (package kubeletapi), as the node's status tells the API server. 0: they
	// are not.
	KubeletPort int32
	// APIService is the value of KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT in containers: the address of the Service kubernetes,
	// where one is reachable. When zero, neither is set. No other Service has such variables.
	APIService netip.AddrPort
	// Dial connects to pods, for probes. Default: as any program of this machine does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Version is shown as the kubelet's version.
	Version string

	// LeaseDuration is how long the node counts as alive after a renewal (default 40 s), LeaseRenewal how often it is renewed
	// (a quarter of that). Both also pace the look after the Node object (NODE-8).
	LeaseDuration time.Duration
	LeaseRenewal  time.Duration
	// StatusInterval is how often the node's conditions are measured and reported. Default 10 s.
	StatusInterval time.Duration
	// RequestTimeout bounds every call of the API server that is not a watch. Default 10 s.
	RequestTimeout time.Duration
	// OrphanGrace is the grace period of the containers of a pod that vanished from the API server, when its record does not have the pod's own.
	// Default 30 s.
	OrphanGrace time.Duration

	// MinDiskFree is the free space that the file systems of the state directory and the images need; below it the node reports
	// DiskPressure and receives no new pods. Default: DefaultDiskReserve.
	MinDiskFree DiskReserve
	// DiskSpace measures disks. Default: as the system says.
	DiskSpace DiskSpace

	Log   *slog.Logger
	Clock clock.WithTickerAndDelayedExecution
	// Random spreads what is tried again; it returns a number in [0, 1). Default: rand.Float64.
	Random func() float64
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Name == "" || len(validation.IsDNS1123Subdomain(o.Name)) > 0:
		return o, fmt.Errorf("node name %q: use lower-case letters, digits, '-' and '.'", o.Name)
	case o.Config == nil:
		return o, fmt.Errorf("node %s: a client configuration is required", o.Name)
	case o.Sandbox == nil || o.SandboxName == "":
		return o, fmt.Errorf("node %s: a sandbox and its name are required", o.Name)
	case !filepath.IsAbs(o.StateDir):
		return o, fmt.Errorf("state directory %q: give an absolute path", o.StateDir)
	case o.Capacity.Pods().IsZero() || o.Capacity.Cpu().IsZero() || o.Capacity.Memory().IsZero():
		return o, fmt.Errorf("node %s: capacity needs cpu, memory and pods", o.Name)
	}
	for k := range o.Labels {
		if problems := validation.IsQualifiedName(k); len(problems) > 0 {
			return o, fmt.Errorf("label %q: %s", k, strings.Join(problems, "; "))
		}
	}
	setDefault(&o.IP, "127.0.0.1")
	setDefault(&o.Version, "v0.0.0-bullpen")
	setDefault(&o.LeaseDuration, 40*time.Second)
	setDefault(&o.LeaseRenewal, o.LeaseDuration/4)
	setDefault(&o.StatusInterval, 10*time.Second)
	setDefault(&o.RequestTimeout, 10*time.Second)
	setDefault(&o.OrphanGrace, 30*time.Second)
	setDefault(&o.MinDiskFree, DefaultDiskReserve)
	if o.DiskSpace == nil {
		o.DiskSpace = diskSpace
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
