package onebox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Paths of the service on a machine with systemd.
const (
	serviceName = "bullpen"
	unitFile    = "/etc/systemd/system/" + serviceName + ".service"
	// ServiceEnvironment may have variables with secrets, such as BULLPEN_DATABASE_URL.
	ServiceEnvironment = "/etc/bullpen/up.env"
)

// Service is a `bullpen up` that systemd runs.
type Service struct {
	Binary     string
	Args       []string
	Environ    []string // of this process; only what finds programs is kept
	Containers bool
}

// serviceVariables find the programs of the control plane and of a node. None has a secret.
var serviceVariables = []string{"BULLPEN_ASSETS", "KUBEBUILDER_ASSETS", "BULLPEN_NODE_ASSETS", "BULLPEN_CACHE", "XDG_CACHE_HOME", "HOME", "PATH"}

// unit is the text of the unit. KillMode mixed sends SIGTERM to `bullpen up` alone, which stops the others after its drain.
func (s Service) unit() (string, error) {
	command := make([]string, 0, len(s.Args)+1)
	for _, word := range append([]string{s.Binary}, s.Args...) {
		quoted, err := quoteWord(word)
		if err != nil {
			return "", err
		}
		command = append(command, quoted)
	}
	var environment strings.Builder
	for _, entry := range s.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if !slices.Contains(serviceVariables, name) {
			continue
		}
		quoted, err := quoteWord(entry)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&environment, "Environment=%s\n", quoted)
	}
	isolated := ""
	if s.Containers {
		isolated = "# Containers have cgroups of their own, beside this service's.\nDelegate=yes\n"
	}
	return fmt.Sprintf(`# Written by bullpen up --install-service.
[Unit]
Description=Bullpen: runners for GitHub Actions
Documentation=https://github.com/bullpen-ci/bullpen
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart=%s
%sEnvironmentFile=-%s
# The first SIGTERM is for bullpen up alone: it waits for running jobs, and stops everything.
KillMode=mixed
TimeoutStopSec=%d
Restart=on-failure
RestartSec=5
OOMPolicy=continue
LimitNOFILE=1048576
%s
[Install]
WantedBy=multi-user.target
`, strings.Join(command, " "), environment.String(), ServiceEnvironment, int((drainPatience + stopPatience).Seconds()), isolated), nil
}

// quoteWord is a word of a unit's command line (systemd.syntax, systemd.service): in double quotes, with what systemd would expand escaped.
func quoteWord(word string) (string, error) {
	if strings.ContainsAny(word, "\n\r\x00") {
		return "", fmt.Errorf("%q cannot be written into a systemd unit: it has a line break", word)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(word) + `"`, nil
}

// InstallService writes the unit, and returns what to do next.
func InstallService(s Service) (string, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil { // sd_booted(3)
		return "", errors.New("--install-service needs systemd, which does not run on this machine. Have its own service manager run `bullpen up --drain`")
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("--install-service writes %s. Run it as root, or with sudo", unitFile)
	}
	text, err := s.unit()
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(unitFile, []byte(text), 0o644); err != nil { //nolint:gosec // units have no secrets, and are readable by all
		return "", fmt.Errorf("writing the unit: %w", err)
	}
	next := "Wrote " + unitFile + ". Next:\n"
	for _, line := range [][2]string{
		{"systemctl daemon-reload", "read the unit"},
		{"systemctl enable --now " + serviceName, "start it, also after a reboot"},
		{"journalctl -u " + serviceName + " -f", "follow what it does"},
		{"systemctl restart " + serviceName, "after an upgrade of bullpen; running jobs finish first"},
		{"bullpen down --now", "stop without waiting for running jobs"},
	} {
		next += fmt.Sprintf("  %-32s %s\n", line[0], line[1])
	}
	return next, nil
}
