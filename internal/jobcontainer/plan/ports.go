package plan

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// mapping is one port of `ports:`. A host port of 0 is "any", and a range of more than one is "any of these".
type mapping struct {
	hostFirst, hostLast int
	port                Port
}

const maxRange = 1000 // ports of one range

// parsePort reads [IP:][HOST:]CONTAINER[/PROTOCOL], in which both ports may be ranges, as Docker does. The IP address is not used:
// the network of the pod is the job's alone. It returns why it can't.
func parsePort(text string) ([]mapping, string) {
	const form = "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp"
	spec, protocol, why := cutProtocol(text)
	if why != "" {
		return nil, why
	}
	host, container := "", spec
	if i := strings.LastIndexByte(spec, ':'); i >= 0 {
		host, container = spec[:i], spec[i+1:]
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		ip := strings.TrimSuffix(strings.TrimPrefix(host[:i], "["), "]")
		if _, err := netip.ParseAddr(ip); err != nil && ip != "" {
			return nil, "'" + host[:i] + "' is no IP address"
		}
		host = host[i+1:]
	}
	low, high, ok := portRange(container)
	if !ok {
		return nil, form
	}
	hostLow, hostHigh := 0, 0
	if host != "" {
		if hostLow, hostHigh, ok = portRange(host); !ok {
			return nil, form
		}
	}
	count := high - low + 1
	if host != "" && count > 1 && hostHigh-hostLow+1 != count {
		return nil, "both ranges must have the same length"
	}
	var mappings []mapping
	for i := range count {
		m := mapping{hostFirst: hostLow, hostLast: hostHigh, port: Port{Number: low + i, Protocol: protocol}}
		if host != "" && count > 1 {
			m.hostFirst, m.hostLast = hostLow+i, hostLow+i
		}
		mappings = append(mappings, m)
	}
	return mappings, ""
}

func cutProtocol(text string) (spec, protocol, why string) {
	spec, protocol, given := strings.Cut(text, "/")
	protocol = strings.ToLower(protocol)
	if !given {
		protocol = "tcp"
	}
	switch protocol {
	case "tcp", "udp", "sctp":
		return spec, protocol, ""
	}
	return "", "", "the protocol must be tcp or udp"
}

// portRange reads PORT or FIRST-LAST.
func portRange(text string) (low, high int, ok bool) {
	from, to, two := strings.Cut(text, "-")
	if !two {
		to = from
	}
	low, lowErr := strconv.Atoi(from)
	high, highErr := strconv.Atoi(to)
	return low, high, lowErr == nil && highErr == nil && low >= 1 && high <= 65535 && low <= high && high-low < maxRange
}

// parseExposed reads --expose, or an exposed port of an image.
func parseExposed(text string) ([]Port, string) {
	spec, protocol, why := cutProtocol(text)
	if why != "" {
		return nil, why
	}
	low, high, ok := portRange(spec)
	if !ok {
		return nil, "must be a port or a range of ports"
	}
	var ports []Port
	for number := low; number <= high; number++ {
		ports = append(ports, Port{Number: number, Protocol: protocol})
	}
	return ports, ""
}

// exposed returns the ports that an image exposes. It ignores those that can't be read, as they are the image's.
func exposed(config jobcontainer.ImageConfig) []Port {
	var ports []Port
	for _, text := range config.ExposedPorts {
		these, _ := parseExposed(text)
		ports = append(ports, these...)
	}
	return ports
}

// listens returns the ports on which a service is taken to listen: those of `ports:` and --expose, and without any, those that its
// image exposes. So a service that is configured to use another port than its image's says so by `ports:`.
func (one draft) listens(config jobcontainer.ImageConfig) []Port {
	var ports []Port
	for _, m := range one.ports {
		ports = append(ports, m.port)
	}
	for _, text := range one.options.Expose {
		these, _ := parseExposed(text)
		ports = append(ports, these...)
	}
	if len(ports) == 0 {
		ports = exposed(config)
	}
	return ports
}

// owner is the container that listens on a port; zero: another process of the pod.
type owner struct {
	role jobcontainer.Role
	name string
}

func (o owner) title() string {
	if o.name == "" {
		return ""
	}
	return Titled(o.role, o.name)
}

// network gives out the ports of the pod. Without granted containers it only looks for what is wrong already. The containers of
// its plan have nothing but ports.
func (d Draft) network(granted []jobcontainer.Granted) (Plan, error) {
	var found problems
	plan := Plan{Containers: make([]Container, len(d.drafts))}
	owners := map[Port]owner{}
	for _, port := range d.runner.Taken {
		owners[port] = owner{}
	}
	configs := make([]jobcontainer.ImageConfig, len(d.drafts))
	for i := range granted {
		configs[i] = granted[i].Config
	}
	for i, one := range d.drafts {
		if one.role == jobcontainer.RoleService {
			d.claim(owners, one, one.listens(configs[i]), &found)
		}
	}
	if len(found) > 0 { // else each forward would be reported, too
		return plan, found.err()
	}
	for i, one := range d.drafts {
		plan.Containers[i].Ports = map[string]string{}
		for _, m := range one.ports {
			plan.forward(i, one, m, owners, &found)
		}
		if one.options.PublishAll {
			for _, port := range append(exposed(configs[i]), one.listens(configs[i])...) {
				number := strconv.Itoa(port.Number)
				if _, known := plan.Containers[i].Ports[number]; !known {
					plan.Containers[i].Ports[number] = number
				}
			}
		}
	}
	return plan, found.err()
}

// claim notes on which ports a service listens.
func (d Draft) claim(owners map[Port]owner, one draft, ports []Port, found *problems) {
	for _, port := range ports {
		switch owner, taken := owners[port]; {
		case taken && owner.name == "":
			found.add("%s", PortTakenText(port.Number, Titled(one.role, one.name), ""))
		case taken && owner.name != one.name:
			found.add("%s", SamePortText(owner.name, one.name, port.Number))
		}
		owners[port] = owner{one.role, one.name}
	}
}

// forward opens the host port of a mapping.
func (p *Plan) forward(i int, one draft, m mapping, owners map[Port]owner, found *problems) {
	number := strconv.Itoa(m.port.Number)
	if m.hostFirst == 0 || (m.hostFirst <= m.port.Number && m.port.Number <= m.hostLast) {
		p.Containers[i].Ports[number] = number // the container itself listens there
		return
	}
	if m.port.Protocol == "sctp" {
		found.add("Port %s/sctp of container '%s' can't be mapped to another one on this runner. Use the same number for both.", number, one.name)
		return
	}
	for host := m.hostFirst; host <= m.hostLast; host++ {
		port := Port{Number: host, Protocol: m.port.Protocol}
		if _, taken := owners[port]; taken {
			continue
		}
		owners[port] = owner{one.role, one.name}
		p.Containers[i].Ports[number] = strconv.Itoa(host)
		p.Forwards = append(p.Forwards, Forward{Container: i, Protocol: port.Protocol, HostPort: host, Port: m.port.Number})
		return
	}
	found.add("%s", PortTakenText(m.hostFirst, Titled(one.role, one.name), owners[Port{Number: m.hostFirst, Protocol: m.port.Protocol}].title()))
}
