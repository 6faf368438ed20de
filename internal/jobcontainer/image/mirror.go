package image

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// everyRegistry is the Registry of a mirror of all registries.
const everyRegistry = "*"

// Mirror is asked for the images of a registry before the registry itself: a mirror or a pull-through cache that an administrator
// chose. ParseMirror makes it.
//
// Its host may have a private address, and with http:// it is asked without TLS. Neither holds for hosts that it redirects to, nor
// for a workflow that names the same host as a registry. It is never sent a workflow's credentials, so its content is public to all
// tenants of the Resolver.
type Mirror struct {
	// Registry is as in image names: docker.io for Docker Hub, host[:port], or "*" for every registry.
	Registry string
	// URL is http or https and a host. Its path is put before the repository, as for a proxy project of Harbor.
	URL *url.URL
}

// ParseMirror reads REGISTRY=URL, such as docker.io=https://mirror.example.com. Its errors contain nothing of a text that may have a
// password.
func ParseMirror(text string) (Mirror, error) {
	registry, address, ok := strings.Cut(text, "=")
	if !ok {
		return Mirror{}, errors.New("it is not REGISTRY=URL, such as docker.io=https://mirror.example.com")
	}
	registry, err := parseMirrored(registry)
	if err != nil {
		return Mirror{}, err
	}
	u, err := parseMirrorURL(address)
	if err != nil {
		return Mirror{}, fmt.Errorf("mirror of %s: %w", registry, err)
	}
	m := Mirror{Registry: registry, URL: u}
	if m.isRegistry(registry) {
		return Mirror{}, fmt.Errorf("mirror of %s: its URL is that of the registry. Remove the entry, or name the mirror's own host", registry)
	}
	return m, nil
}

func parseMirrored(registry string) (string, error) {
	registry = strings.ToLower(registry)
	switch {
	case registry == everyRegistry:
		return registry, nil
	case imagename.CheckHost(registry) != nil, !strings.ContainsAny(registry, ".:") && registry != "localhost":
		return "", errors.New(`its registry is not one of an image name. Before the "=" write docker.io, another host or host:port, or "*" for every registry`)
	case registry == "index.docker.io":
		return imagename.DockerHub, nil
	}
	return registry, nil
}

func parseMirrorURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err == nil && u.User != nil:
		return nil, errors.New("its URL has a user name or a password. Remove them: mirrors are asked without credentials")
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", imagename.CheckHost(u.Host) != nil: // the error of Parse contains the URL
		return nil, errors.New("its URL is not http:// or https:// and a host or host:port. Write, for example, https://mirror.example.com")
	case strings.ContainsAny(address, "?#"):
		return nil, errors.New("its URL has a query or a fragment. Remove it")
	}
	if literal, err := netip.ParseAddr(u.Hostname()); err == nil && judge(literal, nil) == forbidden {
		return nil, errors.New("its URL has a link-local or special address, to which the controller never connects. Use another address of the mirror")
	}
	path := strings.Trim(u.Path, "/")
	if path == "v2" || strings.HasPrefix(path, "v2/") {
		return nil, errors.New("its path begins with /v2, which is put before it in each request. Remove /v2")
	}
	if path != "" {
		name, err := ParseName("registry.example/" + path + "/x")
		if err != nil || name.Repository != path+"/x" || u.RawPath != "" {
			return nil, errors.New("its path is not one of a repository. Use lowercase letters, digits, '.', '_', '-' and '/'")
		}
		path = "/" + path
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host), Path: path}, nil
}

// isRegistry reports whether the mirror is the registry itself. It is then asked as a registry, under the pool's policy alone.
func (m Mirror) isRegistry(registry string) bool {
	return slices.ContainsFunc([]string{"https", "http"}, func(scheme string) bool {
		return withPort(&url.URL{Scheme: scheme, Host: registry}) == withPort(m.URL)
	})
}

// repository is where the mirror has the images of a registry's repository.
func (m Mirror) repository(name imagename.Name) string {
	return strings.TrimPrefix(m.URL.Path+"/"+name.Repository, "/")
}

// owns reports whether a URL is of the mirror's own host, with the scheme and the port of its URL.
func (m *Mirror) owns(u *url.URL) bool {
	return m != nil && u.Scheme == m.URL.Scheme && m.listens(withPort(u))
}

// listens reports whether host:port is the mirror's own.
func (m *Mirror) listens(hostport string) bool { return m != nil && hostport == withPort(m.URL) }

// mirrorsOf are the mirrors of a registry in the order in which they are asked: its own before those of every registry.
func mirrorsOf(all []Mirror, registry string) []Mirror {
	var own, others []Mirror
	for _, mirror := range all {
		switch {
		case mirror.isRegistry(registry):
		case mirror.Registry == registry:
			own = append(own, mirror)
		case mirror.Registry == everyRegistry:
			others = append(others, mirror)
		}
	}
	return append(own, others...)
}

// askMirrors returns the image of the first mirror that has it, or why each of them did not, for the controller's log. Together they
// have a third of the image's time, in equal shares of what is left, so that the registry can still respond in the rest.
func (r *Resolver) askMirrors(ctx context.Context, query Query, k key) (found cached, problems []string, ok bool) {
	mirrors := mirrorsOf(r.options.Mirrors, k.name.Registry)
	end := r.options.Now().Add(r.options.Timeout / 3)
	for i, mirror := range mirrors {
		share := end.Sub(r.options.Now()) / time.Duration(len(mirrors)-i)
		if share <= 0 || ctx.Err() != nil {
			break
		}
		found, err := r.askMirror(ctx, query, k, mirror, share)
		if err == nil {
			return found, nil, true
		}
		reason, detail := classify(err)
		problems = append(problems, strings.TrimSpace(fmt.Sprintf("mirror %s: %s %s", mirror.URL.Host, reason, detail)))
	}
	return cached{}, problems, false
}

// askMirror has one conversation with a mirror, without the workflow's credentials. A panic is its failure, as any other.
func (r *Resolver) askMirror(ctx context.Context, query Query, k key, mirror Mirror, share time.Duration) (cached, error) {
	ctx, stop := r.within(ctx, share, errTimedOut)
	defer stop()
	found, err := safely(ctx, func(ctx context.Context) (cached, error) {
		if err := r.admitMirrored(ctx, query.Policy, k.name, mirror, share/2); err != nil {
			return cached{}, err
		}
		return r.attempt(ctx, query, k, &mirror, nil)
	})
	if err != nil && ctx.Err() != nil {
		return cached{}, context.Cause(ctx)
	}
	return found, err
}

// admitMirrored (JOB-7) keeps registries that the pool may not reach from mirrors of every registry, which might connect to them: what a
// workflow names must not be reached from the mirror's network instead. A name that only the mirror can look up is the mirror's to
// permit, also where its own lookup does not end in the given time.
func (r *Resolver) admitMirrored(ctx context.Context, policy imagename.Policy, name imagename.Name, mirror Mirror, patience time.Duration) error {
	if mirror.Registry != everyRegistry || name.Registry == imagename.DockerHub {
		return nil // an administrator chose the registry
	}
	host, named := imagename.Host(name.Registry), policy.Names(name.Registry)
	bounded, stop := r.within(ctx, patience, errTimedOut)
	defer stop()
	addresses, err := r.options.DNS.LookupNetIP(bounded, "ip", absolute(host, named))
	if err != nil && !named && isClusters(host) {
		return refusedAddress(host, "of a cluster")
	}
	if err != nil {
		return nil // see above
	}
	for _, address := range addresses {
		if !mayConnect(host, named, address, r.options.ClusterNetworks) {
			return refusedAddress(host, address.String())
		}
	}
	return nil
}

// isClusters reports whether a name is looked up in a cluster's search domains, or is of a Service.
func isClusters(host string) bool {
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local")
}

// mirroredError is the registry's error, after its mirrors failed.
type mirroredError struct {
	err      error
	problems []string
}

func (e *mirroredError) Error() string { return e.err.Error() }
func (e *mirroredError) Unwrap() error { return e.err }

// detailOf is the detail of an error for the controller's log, with those of mirrors.
func detailOf(err error, detail string) string {
	var mirrored *mirroredError
	if !errors.As(err, &mirrored) || len(mirrored.problems) == 0 {
		return detail
	}
	return strings.Join(append([]string{detail}, mirrored.problems...), "; ")
}
