package onebox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// ports are kept, so that addresses stay the same when the directory is taken up again: the dispatch address is part of
// every runner pod.
type ports map[string]int

// The range lies below the ports that Linux and macOS give to outgoing connections, so that no connection takes a port
// between its choice and its use, and beside the control plane's.
const (
	firstPort = 30000
	portCount = 2000
)

func loadPorts(path string) (ports, error) {
	kept := ports{}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &StaleFolderError{fmt.Sprintf("%s cannot be read (%v). Remove it; then other ports are chosen", path, err)}
	}
	return kept, nil
}

// address of a listener: the one asked for, else the one it had before if that is still free, else a free one.
func (p ports) address(name, asked, flag string) (string, error) {
	if asked != "" {
		return asked, checkAddress(flag, asked)
	}
	if p[name] == 0 || !portFree(p[name]) {
		port, err := p.choose()
		if err != nil {
			return "", err
		}
		p[name] = port
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p[name])), nil
}

func (p ports) choose() (int, error) {
	for range 200 {
		port := firstPort + rand.IntN(portCount)
		if !p.has(port) && portFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 between %d and %d. Stop programs that listen there", firstPort, firstPort+portCount-1)
}

func (p ports) has(port int) bool {
	for _, used := range p {
		if used == port {
			return true
		}
	}
	return false
}

func portFree(port int) bool {
	return tryListen(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) == nil
}

// chooseAddresses settles where our processes listen.
func chooseAddresses(l Layout, opts Options) (addresses, error) {
	kept, err := loadPorts(l.portsFile())
	if err != nil {
		return addresses{}, err
	}
	var a addresses
	type listener struct {
		name, asked, flag string
		into              *string
	}
	listeners := []listener{
		{"webhooks", opts.Listen, "--listen", &a.Webhooks},
		{"internal", "", "", &a.Internal},
		{"admin", "", "", &a.Admin},
		{"serverMetrics", "", "", &a.ServerMetrics},
		{"controllerHealth", "", "", &a.ControllerHealth},
		{"controllerMetrics", "", "", &a.ControllerMetrics},
		{"kubelet", "", "", &a.Kubelet},
		{"mac-kubelet", "", "", &a.MacKubelet},
		{"github", opts.GitHubListen, "--github-listen", &a.GitHub},
	}
	if !opts.Ungated && !opts.Containers {
		listeners = append(listeners, listener{"gate", "", "", &a.Gate})
	}
	if opts.Containers {
		listeners = append(listeners, listener{"images", "", "", &a.Images})
	}
	for _, one := range listeners {
		if *one.into, err = kept.address(one.name, one.asked, one.flag); err != nil {
			return addresses{}, err
		}
	}
	return a, writeJSON(l.portsFile(), kept)
}
