package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/internal/node/kubeletapi"
)

// kubeletFlags configure how bullpen node serves logs and commands.
type kubeletFlags struct {
	port                        int32
	clientCA, certFile, keyFile string
}

func (f *kubeletFlags) add(flags *pflag.FlagSet) {
	flags.Int32Var(&f.port, "kubelet-port", kubeletapi.DefaultPort, "port at --node-ip for kubectl logs and exec, /healthz, /metrics and /pods (0: disabled)")
	flags.StringVar(&f.clientCA, "client-ca-file", "", "CA certificates (PEM) for client certificates, such as the API server's (default: tokens only)")
	flags.StringVar(&f.certFile, "tls-cert-file", "", "serving certificate (PEM), reloaded when it changes (default: requested from the cluster)")
	flags.StringVar(&f.keyFile, "tls-private-key-file", "", "key (PEM) of --tls-cert-file")
}

// run runs the agent and, beside it, what serves its pods' logs.
func (f kubeletFlags) run(ctx context.Context, opts node.Options, agent *node.Agent) error {
	if f.port == 0 {
		return agent.Run(ctx)
	}
	if opts.IP == "" {
		opts.IP = "127.0.0.1"
	}
	certificate, done, err := f.certificate(opts)
	if err != nil {
		return err
	}
	defer done()
	var roots func() *x509.CertPool
	if f.clientCA == "" {
		opts.Log.Warn("no --client-ca-file: clients of logs need a token, and most API servers authenticate with a certificate")
	} else if roots, err = identity.AuthoritiesFromFile(f.clientCA); err != nil {
		return err
	}
	metrics, err := nodeMetrics(agent)
	if err != nil {
		return err
	}
	server, err := kubeletapi.New(kubeletapi.Options{
		Node: opts.Name, Config: opts.Config, Pods: agent, Sandbox: opts.Sandbox, Certificate: certificate, Roots: roots, Metrics: metrics, Log: opts.Log,
	})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(opts.IP, strconv.Itoa(int(f.port))))
	if err != nil {
		return fmt.Errorf("listening for kubectl logs and exec: %w. Choose another --kubelet-port, or 0 to disable it", err)
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return agent.Run(ctx) })
	both.Go(func() error { return server.Serve(ctx, listener) })
	return both.Wait()
}

type certificateSource func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// certificate is what the node proves itself with.
func (f kubeletFlags) certificate(opts node.Options) (_ certificateSource, done func(), err error) {
	if f.certFile != "" {
		given, err := identity.FromFiles(f.certFile, f.keyFile)
		return given, func() {}, err
	}
	address := net.ParseIP(opts.IP)
	if address == nil {
		return nil, nil, errors.New("--node-ip must be an IP address")
	}
	serving, err := identity.OpenServing(identity.ServingOptions{
		Name: opts.Name, Address: address, Config: opts.Config, Dir: identity.Dir(opts.StateDir), Log: opts.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	return serving.Certificate, serving.Close, nil
}
