package main

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"os"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
)

// registryFlags say how the controller reaches the registries of job images.
type registryFlags struct {
	caFile   string
	networks []string
	mirrors  []string
}

func (f *registryFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.caFile, "registry-ca-file", "", "file with additional CA certificates (PEM) of registries that images of jobs are in; read at the\n"+
		"controller's start. Nodes pull the images, and must trust them, too")
	set.StringSliceVar(&f.networks, "cluster-networks", nil, "networks of pods, Services and nodes that have public addresses (CIDR, separated by commas): no image of\n"+
		"a job is looked up there unless its pool permits the registry. Private addresses need not be listed")
	set.StringArrayVar(&f.mirrors, "registry-mirror", nil, "mirror or pull-through cache to query for images of jobs before their registry, as REGISTRY=URL (can be repeated):\n"+
		"docker.io=https://mirror.example.com, or a path before the repository: https://harbor.example.com/dockerhub. \"*\" as REGISTRY is every\n"+
		"registry, after those with a mirror of their own. http:// permits requests without TLS. Nodes have mirrors of their own")
}

// resolver looks up images as the flags say.
func (f *registryFlags) resolver() (*image.Resolver, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	return image.New(options), nil
}

// options reads the file. Images of jobs are looked up for tenants, so a mistake here must not go unnoticed.
func (f *registryFlags) options() (image.Options, error) {
	o := image.Options{Proxy: http.ProxyFromEnvironment}
	for _, text := range f.networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return o, fmt.Errorf("--cluster-networks: %w", err)
		}
		o.ClusterNetworks = append(o.ClusterNetworks, network)
	}
	for i, text := range f.mirrors {
		mirror, err := image.ParseMirror(text)
		if err != nil {
			return o, fmt.Errorf("--registry-mirror: entry %d: %w", i+1, err) // without the text, which may have a password
		}
		o.Mirrors = append(o.Mirrors, mirror)
	}
	if f.caFile == "" {
		return o, nil
	}
	pem, err := os.ReadFile(f.caFile)
	if err != nil {
		return o, fmt.Errorf("--registry-ca-file: %w", err)
	}
	if o.RootCAs, err = x509.SystemCertPool(); err != nil {
		return o, fmt.Errorf("--registry-ca-file: reading the system's CA certificates: %w", err)
	}
	if !o.RootCAs.AppendCertsFromPEM(pem) {
		return o, fmt.Errorf("--registry-ca-file: %s contains no PEM certificate", f.caFile)
	}
	return o, nil
}
