package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// componentPlan is how to start a component, and how to ask whether it is healthy.
type componentPlan struct {
	args    []string
	healthy func(ctx context.Context) error
}

// issuer is in every service account token; nothing outside looks it up.
const issuer = "https://kubernetes.default.svc.cluster.local"

// ServiceRange is the range of Services' addresses; ServiceAddress, its first, is that of the API server's own
// Service, kubernetes. Nothing listens at any of them without kube-proxy (package realnode).
const (
	ServiceRange   = "10.111.0.0/16"
	ServiceAddress = "10.111.0.1"
)

// plan also writes the kubeconfig files that depend on the API server's port.
func (c *ControlPlane) plan(component Component) (componentPlan, error) {
	c.mu.Lock()
	p := c.ports
	c.mu.Unlock()
	var plan componentPlan
	var err error
	switch component {
	case Etcd:
		plan, err = c.planEtcd(p)
	case APIServer:
		plan, err = c.planAPIServer(p)
	case ControllerManager:
		plan, err = c.planControllerManager(p)
	case Scheduler:
		plan, err = c.planScheduler(p)
	default:
		return plan, fmt.Errorf("%q is not a component of the control plane", component)
	}
	plan.args = append(plan.args, c.opts.ExtraArgs[component]...)
	return plan, err
}

func (c *ControlPlane) planEtcd(p ports) (componentPlan, error) {
	client, peer := p.url(p.EtcdClient), p.url(p.EtcdPeer)
	ca, cert, key := c.pki.path("etcd-ca.crt"), c.pki.path("etcd.crt"), c.pki.path("etcd.key")
	args := []string{
		"--name=bullpen",
		"--data-dir=" + filepath.Join(c.opts.StateDir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=bullpen=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + ca, "--cert-file=" + cert, "--key-file=" + key,
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + ca, "--peer-cert-file=" + cert, "--peer-key-file=" + key,
		"--log-level=warn",
	}
	if c.opts.FastUnsafe {
		args = append(args, "--unsafe-no-fsync")
	}
	own, err := tls.LoadX509KeyPair(c.pki.path("apiserver-etcd-client.crt"), c.pki.path("apiserver-etcd-client.key"))
	if err != nil {
		return componentPlan{}, fmt.Errorf("loading etcd's client certificate: %w", err)
	}
	return componentPlan{args: args, healthy: probe(client+"/health", c.pki.etcd, own)}, nil
}

func (c *ControlPlane) planAPIServer(p ports) (componentPlan, error) {
	if err := WriteKubeconfig(c.AdminKubeconfig(), c.AdminConfig()); err != nil {
		return componentPlan{}, err
	}
	own, err := tls.X509KeyPair(c.pki.admin.cert, c.pki.admin.key)
	if err != nil {
		return componentPlan{}, fmt.Errorf("loading the admin certificate: %w", err)
	}
	return componentPlan{
		args: append(c.serving("apiserver", p.APIServer),
			"--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none", // a loopback address is no endpoint that pods could use
			"--etcd-servers="+p.url(p.EtcdClient),
			"--etcd-cafile="+c.pki.path("etcd-ca.crt"),
			"--etcd-certfile="+c.pki.path("apiserver-etcd-client.crt"),
			"--etcd-keyfile="+c.pki.path("apiserver-etcd-client.key"),
			"--client-ca-file="+c.pki.path("ca.crt"),
			"--requestheader-client-ca-file="+c.pki.path("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file="+c.pki.path("front-proxy-client.crt"),
			"--proxy-client-key-file="+c.pki.path("front-proxy-client.key"),
			"--kubelet-client-certificate="+c.pki.path(KubeletClient+".crt"),
			"--kubelet-client-key="+c.pki.path(KubeletClient+".key"),
			"--kubelet-certificate-authority="+c.pki.path("ca.crt"), // nodes are verified before logs and commands go over the wire
			"--kubelet-preferred-address-types=InternalIP,Hostname",
			"--anonymous-auth=false",
			"--enable-bootstrap-token-auth", // how a node agent asks for its certificate
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement", // the latter as stricter distributions have it
			"--allow-privileged=true",
			"--service-cluster-ip-range="+ServiceRange,
			"--service-account-issuer="+issuer,
			"--service-account-key-file="+c.pki.path("sa.key"),
			"--service-account-signing-key-file="+c.pki.path("sa.key"),
			"--profiling=false",
		),
		healthy: probe(p.url(p.APIServer)+"/readyz", c.pki.cluster, own),
	}, nil
}

func (c *ControlPlane) planControllerManager(p ports) (componentPlan, error) {
	args, err := c.client("controller-manager", "system:kube-controller-manager", p.ControllerManager)
	return componentPlan{
		args: append(args,
			"--service-account-private-key-file="+c.pki.path("sa.key"),
			"--root-ca-file="+c.pki.path("ca.crt"),
			"--use-service-account-credentials", // each controller under its own role, as in a real cluster
			"--cluster-signing-cert-file="+c.pki.path("ca.crt"),
			"--cluster-signing-key-file="+c.pki.path("ca.key"),
			// The defaults protect a shared API server; hundreds of runner pods at once would crawl behind them here.
			"--kube-api-qps=200", "--kube-api-burst=400",
		),
		healthy: probe(p.url(p.ControllerManager)+"/healthz", c.pki.cluster),
	}, err
}

func (c *ControlPlane) planScheduler(p ports) (componentPlan, error) {
	args, err := c.client("scheduler", "system:kube-scheduler", p.Scheduler)
	return componentPlan{
		args:    append(args, "--kube-api-qps=200", "--kube-api-burst=400"),
		healthy: probe(p.url(p.Scheduler)+"/readyz", c.pki.cluster),
	}, err
}

// client are the arguments of a component that talks to the API server under an identity of its own.
func (c *ControlPlane) client(name, user string, port int) ([]string, error) {
	config, err := c.Identity(user)
	if err != nil {
		return nil, err
	}
	kubeconfig := c.kubeconfigPath(name)
	if err := WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	return append(c.serving(name, port),
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--leader-elect=false", // there is one of each
		"--profiling=false",
	), nil
}

// serving are the arguments of a component that serves HTTPS on the loopback interface only.
func (c *ControlPlane) serving(name string, port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.pki.path(name+".crt"),
		"--tls-private-key-file=" + c.pki.path(name+".key"),
	}
}

// probe asks a health endpoint, trusting only the authority by, with a client certificate when one is given.
func probe(url string, by *authority, own ...tls.Certificate) func(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AddCert(by.parsed)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // a probe leaves no idle connection behind
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS12},
	}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("asking %s: %w", url, err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
		if err != nil {
			return fmt.Errorf("reading %s: %w", url, err)
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("asking %s: status %d: %s", url, response.StatusCode, body)
		}
		return nil
	}
}

var errExited = errors.New("the process ended")

// waitHealthy asks again and again until healthy has no error, the process ends or ctx does.
func waitHealthy(ctx context.Context, healthy func(context.Context) error, exited <-chan struct{}) error {
	const pause, patience = 50 * time.Millisecond, 5 * time.Second
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		askCtx, cancel := context.WithTimeout(ctx, patience)
		last := healthy(askCtx)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-exited:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %w", ctx.Err(), last)
		case <-ticker.C:
		}
	}
}
