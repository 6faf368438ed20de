package soak

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// The state directory:
//
//	soak.json       what was asked for
//	rounds/N/       schedule.json, report.txt, report.json
//	evidence/       what the witnesses wrote: see package check
//	logs/           the logs of all processes
//	postgres/ control-plane/ nodes/ github.json secrets/ ports.json     what runs

func (s *System) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}
func (s *System) evidenceDir() string         { return s.path("evidence") }
func (s *System) logFile(name string) string  { return s.path("logs", name+".log") }
func (s *System) secret(name string) string   { return s.path("secrets", name) }
func (s *System) nodeDir(name string) string  { return s.path("nodes", name) }
func (s *System) socket(node string) string   { return s.path("nodes", node+".sock") }
func (s *System) identity(name string) string { return s.path("secrets", name+".kubeconfig") }

func (s *System) makeDirectories() error {
	if err := os.RemoveAll(s.path("faultpoints")); err != nil { // what an interrupted round had armed
		return fmt.Errorf("disarming fault points: %w", err)
	}
	for _, dir := range []string{"", "rounds", "evidence", "logs", "secrets", "nodes", "control-plane", "faultpoints"} {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return fmt.Errorf("making the state folder: %w", err)
		}
	}
	// PostgreSQL runs as another user when we are root: it has to pass.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return fmt.Errorf("opening the state folder to PostgreSQL: %w", err)
	}
	return nil
}

// once writes a file if there is none yet.
func once(path string, generate func() ([]byte, error)) ([]byte, error) {
	data, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	if data, err = generate(); err != nil {
		return nil, err
	}
	return data, os.WriteFile(path, data, 0o600)
}

func (s *System) appKey() (*rsa.PublicKey, error) {
	encoded, err := once(s.secret("app.pem"), func() ([]byte, error) {
		_, encoded, err := standin.GenerateAppKey()
		return encoded, err
	})
	if err != nil {
		return nil, fmt.Errorf("making the App's key: %w", err)
	}
	return standin.ParseAppKey(encoded)
}

func (s *System) hookSecret() (string, error) {
	text, err := once(s.secret("webhook-secret"), func() ([]byte, error) { return []byte(rand.Text() + "\n"), nil })
	return strings.TrimSpace(string(text)), err
}

// The range lies below the ports that connections leave from, so that none takes a port while its owner is down, and beside
// those of the control plane and of one-machine mode.
const (
	firstPort = 12000
	portCount = 7000
)

// keptAddress is a loopback address that stays the same for the life of the directory: pods know the dispatch address, and
// runners GitHub's. A port that is taken by now is replaced.
func (s *System) keptAddress(name string) string {
	s.portsMu.Lock()
	defer s.portsMu.Unlock()
	ports := map[string]string{}
	if data, err := os.ReadFile(s.path("ports.json")); err == nil {
		_ = json.Unmarshal(data, &ports) // a damaged file only means other ports
	}
	if address := ports[name]; address != "" && s.free(address) {
		return address
	}
	for range 200 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+mathrand.IntN(portCount)))
		if !slices.Contains(slices.Collect(maps.Values(ports)), address) && s.free(address) {
			ports[name] = address
			break
		}
	}
	if data, err := json.Marshal(ports); err == nil {
		_ = os.WriteFile(s.path("ports.json"), data, 0o600)
	}
	return ports[name]
}

func (s *System) free(address string) bool {
	listener, err := new(net.ListenConfig).Listen(s.ctx, "tcp", address)
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// environment is what a part gets of ours: nothing secret, and no database of the user's. And it says where the points are
// armed at which it is to die.
func (s *System) environment() []string {
	kept := []string{"BULLPEN_FAULTPOINT_DIR=" + s.path("faultpoints")}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR"} {
		if value, set := os.LookupEnv(name); set {
			kept = append(kept, name+"="+value)
		}
	}
	return kept
}
