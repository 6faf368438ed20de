package servers

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// File is the content of a configuration file.
type File struct {
	// Current is the name of the server that commands use by default.
	Current string            `json:"current,omitempty" yaml:"current,omitempty"`
	Servers map[string]Server `json:"servers" yaml:"servers"`
}

// Server says how commands reach one server. Without URL and StateDir, that is a port-forward to the release in the kubeconfig's cluster.
type Server struct {
	URL    string `json:"url,omitempty" yaml:"url,omitempty"`
	CAFile string `json:"caFile,omitempty" yaml:"caFile,omitempty"`
	// Kubeconfig and Context authenticate, and name the cluster.
	Kubeconfig string `json:"kubeconfig,omitempty" yaml:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty" yaml:"context,omitempty"`
	// Namespace is the release's.
	Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	// StateDir is that of a bullpen up on this machine.
	StateDir string `json:"stateDir,omitempty" yaml:"stateDir,omitempty"`
}

// field is a field of Server by its name in the file.
type field struct {
	name string
	of   func(*Server) *string
	path bool
}

func fields() []field {
	return []field{
		{"url", func(s *Server) *string { return &s.URL }, false},
		{"caFile", func(s *Server) *string { return &s.CAFile }, true},
		{"kubeconfig", func(s *Server) *string { return &s.Kubeconfig }, true},
		{"context", func(s *Server) *string { return &s.Context }, false},
		{"namespace", func(s *Server) *string { return &s.Namespace }, false},
		{"stateDir", func(s *Server) *string { return &s.StateDir }, true},
	}
}

// Names are those of all servers, sorted.
func (f File) Names() []string { return slices.Sorted(maps.Keys(f.Servers)) }

// UnknownError says that no server has a name.
type UnknownError struct {
	Name, Path string
	near       []string
}

// Error suggests names.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("server %q not found in %s", e.Name, e.Path)
	if len(e.near) > 0 {
		return text + ". Did you mean " + strings.Join(e.near, " or ") + "?"
	}
	return text + ". `bullpen config get-servers` lists servers; a URL begins with https://"
}

// Find is the server of a name, in the file at path.
func (f File) Find(name, path string) (Server, error) {
	server, found := f.Servers[name]
	if !found {
		return Server{}, &UnknownError{Name: name, Path: path, near: commandline.Near(name, f.Names())}
	}
	return server, nil
}

// With is the file with a server added or replaced.
func (f File) With(name string, server Server) File {
	f.Servers = maps.Clone(f.Servers)
	if f.Servers == nil {
		f.Servers = map[string]Server{}
	}
	f.Servers[name] = server
	return f
}

// Without is the file without a server. The current one leaves none current.
func (f File) Without(name string) File {
	f.Servers = maps.Clone(f.Servers)
	delete(f.Servers, name)
	if f.Current == name {
		f.Current = ""
	}
	return f
}

// nameForm is that of a server. It cannot be mistaken for a URL.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// CheckName checks the name of a server.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("invalid server name %q: expected letters, digits, dots, dashes and underscores, such as production", name)
	}
	return nil
}

// IsURL says whether --server or BULLPEN_SERVER has a URL, and not a name.
func IsURL(text string) bool { return strings.Contains(text, ":") || strings.Contains(text, "/") }

// Check checks fields that belong together.
func (s Server) Check() error {
	for _, field := range fields() {
		if value := *field.of(&s); field.path && value != "" && !filepath.IsAbs(value) {
			return fmt.Errorf("%s must be an absolute path, got %q", field.name, value)
		}
	}
	if s.StateDir != "" {
		for _, field := range fields() {
			if field.name != "stateDir" && field.name != "kubeconfig" && *field.of(&s) != "" {
				return fmt.Errorf("stateDir and %s exclude each other: give one of them", field.name)
			}
		}
		return nil
	}
	if s.URL == "" {
		return nil
	}
	if err := CheckURL(s.URL); err != nil {
		return err
	}
	if s.CAFile != "" && strings.HasPrefix(s.URL, "http:") {
		return fmt.Errorf("caFile needs a URL that begins with https://, got %q", s.URL)
	}
	return nil
}

// CheckURL checks that a URL is one to which a token may be sent: https, or this machine.
func CheckURL(server string) error {
	at, err := url.Parse(server)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.RawQuery != "" || at.User != nil {
		return fmt.Errorf("invalid server URL %q: expected https://bullpen.example.com or http://127.0.0.1:8082", redacted(server, at))
	}
	if at.Scheme == "http" && !loopback(at.Hostname()) { // the token is worth whatever its owner may do
		return fmt.Errorf("%s would send your token unencrypted. Use https, or no --server: the command then forwards a port to the release in your kubeconfig's cluster", server)
	}
	return nil
}

// redacted is a URL without its password.
func redacted(text string, at *url.URL) string {
	if at == nil || at.User == nil {
		return text
	}
	return at.Redacted()
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
