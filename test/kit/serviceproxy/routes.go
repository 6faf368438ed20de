package serviceproxy

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// route is where connections to one port of a Service go.
type route struct {
	Service string // namespace/name
	// Backends are addresses in the pods' network; or, if Local, one of this machine's.
	Backends []string
	Local    bool
}

// routesOf says what is reached at which address. local are the Services, by namespace/name, that lead to an address of this
// machine.
func routesOf(services []*corev1.Service, endpoints []*discoveryv1.EndpointSlice, local map[string]string) map[netip.AddrPort]route {
	routes := map[netip.AddrPort]route{}
	for _, service := range services {
		address, err := netip.ParseAddr(service.Spec.ClusterIP)
		if err != nil {
			continue // headless, or without one
		}
		name := service.Namespace + "/" + service.Name
		for _, port := range service.Spec.Ports {
			if port.Protocol != corev1.ProtocolTCP && port.Protocol != "" || port.Port < 1 || port.Port > 65535 {
				continue
			}
			r := route{Service: name}
			if target, is := local[name]; is {
				r.Backends, r.Local = []string{target}, true
			} else {
				r.Backends = backends(service, port.Name, endpoints)
			}
			if len(r.Backends) > 0 {
				routes[netip.AddrPortFrom(address, uint16(port.Port))] = r
			}
		}
	}
	return routes
}

// backends are the endpoints of a Service's port, in order.
func backends(service *corev1.Service, port string, all []*discoveryv1.EndpointSlice) []string {
	var ready, ending []string
	for _, slice := range all {
		if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name {
			continue
		}
		for _, p := range slice.Ports {
			if ptr.Deref(p.Name, "") != port || p.Port == nil {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				for _, text := range endpoint.Addresses {
					address, err := netip.ParseAddr(text)
					if err != nil {
						continue
					}
					at := netip.AddrPortFrom(address, uint16(*p.Port)).String()
					switch c := endpoint.Conditions; {
					case ptr.Deref(c.Ready, true):
						ready = append(ready, at)
					case ptr.Deref(c.Serving, false) && ptr.Deref(c.Terminating, false):
						ending = append(ending, at)
					}
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.Sort(ready)
	return slices.Compact(ready)
}

// resolve finds the address of a Service by a name that a pod may ask for, as the search list of its resolv.conf has
// completed it: NAME.NAMESPACE.svc.DOMAIN or NAME.NAMESPACE.svc, in any case, with a dot at its end.
func resolve(name, domain string, services []*corev1.Service) (netip.Addr, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	name = strings.TrimSuffix(name, "."+strings.ToLower(domain))
	rest, isService := strings.CutSuffix(name, ".svc")
	service, namespace, _ := strings.Cut(rest, ".")
	if !isService {
		return netip.Addr{}, false
	}
	for _, s := range services {
		if s.Name == service && s.Namespace == namespace {
			address, err := netip.ParseAddr(s.Spec.ClusterIP)
			return address, err == nil
		}
	}
	return netip.Addr{}, false
}
