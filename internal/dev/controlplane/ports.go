package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// ports are the loopback ports of one control plane. They persist, so that a kubeconfig handed out before a restart
// of the directory still works after it.
type ports struct {
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

// of are the ports that a component listens on.
func (p *ports) of(component Component) []*int {
	switch component {
	case Etcd:
		return []*int{&p.EtcdClient, &p.EtcdPeer}
	case APIServer:
		return []*int{&p.APIServer}
	case ControllerManager:
		return []*int{&p.ControllerManager}
	case Scheduler:
		return []*int{&p.Scheduler}
	default:
		return nil
	}
}

func (p *ports) all() []*int {
	var all []*int
	for _, component := range Components() {
		all = append(all, p.of(component)...)
	}
	return all
}

func (ports) url(port int) string { return "https://127.0.0.1:" + strconv.Itoa(port) }

// choosePorts reads the ports used before from path, and chooses others in place of those that are unset or taken.
func choosePorts(path string) (ports, error) {
	var p ports
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return p, fmt.Errorf("reading the ports of the last start from %s: %w; remove that file to choose new ones", path, err)
	}
	if err := p.replaceTaken(p.all()); err != nil {
		return p, err
	}
	return p, p.save(path)
}

func (p *ports) save(path string) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the ports: %w", err)
	}
	if err := writeFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("recording the ports: %w", err)
	}
	return nil
}

func (p *ports) replaceTaken(which []*int) error {
	for _, port := range which {
		if *port != 0 && free(*port) {
			continue
		}
		chosen, err := p.choose()
		if err != nil {
			return err
		}
		*port = chosen
	}
	return nil
}

// The range lies below the ports that Linux and macOS give to outgoing connections, so that no connection takes a
// port between its choice and its use. Random choice separates control planes that start at once.
const (
	firstPort = 20000
	portCount = 10000
)

func (p *ports) choose() (int, error) {
	for range 200 {
		candidate := firstPort + rand.IntN(portCount)
		if !p.has(candidate) && free(candidate) {
			return candidate, nil
		}
	}
	return 0, fmt.Errorf("choosing a port: 200 tries between %d and %d on 127.0.0.1 were all taken", firstPort, firstPort+portCount-1)
}

func (p *ports) has(port int) bool {
	for _, used := range p.all() {
		if *used == port {
			return true
		}
	}
	return false
}

func free(port int) bool {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// replaceTakenPorts chooses other ports for a component whose process did not start; it reports whether any was taken
// and replaced.
func (c *ControlPlane) replaceTakenPorts(component Component) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled {
		return false
	}
	before := c.ports
	if err := c.ports.replaceTaken(c.ports.of(component)); err != nil || c.ports == before {
		return false
	}
	return c.ports.save(c.portsPath()) == nil
}
