package standin

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// GitHub's limits for secrets: docs.github.com, "Using secrets in GitHub Actions".
const (
	maxSecret  = 48 << 10
	maxSecrets = 1000
)

var secretName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// ReadSecrets reads a file of secrets for workflows. See [ParseSecrets].
func ReadSecrets(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the secrets: %w", err)
	}
	secrets, err := ParseSecrets(string(data))
	if err != nil {
		return nil, fmt.Errorf("reading the secrets in %s: %w", path, err)
	}
	return secrets, nil
}

// ParseSecrets reads secrets, one a line: NAME=VALUE, or NAME<<END with the lines of the value up to END. Empty lines and lines that begin
// with # are ignored. Names are kept in upper case, as GitHub keeps them. The error names the line, and no value.
func ParseSecrets(text string) (map[string]string, error) {
	secrets := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		at, line := i+1, strings.TrimLeft(lines[i], " \t")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		equals, heredoc := strings.Index(line, "="), strings.Index(line, "<<")
		var name, value string
		switch {
		case equals > 0 && (heredoc < 0 || equals < heredoc):
			name, value = line[:equals], line[equals+1:]
		case heredoc > 0 && heredoc+2 < len(line):
			end := i + 1
			for end < len(lines) && lines[end] != line[heredoc+2:] {
				end++
			}
			if end == len(lines) {
				return nil, fmt.Errorf("the value that begins in line %d has no end. Write the word after << in a line of its own", at)
			}
			name, value, i = line[:heredoc], strings.Join(lines[i+1:end], "\n"), end
		default:
			return nil, fmt.Errorf("line %d is neither NAME=VALUE nor NAME<<END", at)
		}
		name = strings.ToUpper(strings.TrimSpace(name))
		if err := checkSecret(name, value); err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
		secrets[name] = value
	}
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("%d secrets, more than the %d that GitHub keeps", len(secrets), maxSecrets)
	}
	return secrets, nil
}

func checkSecret(name, value string) error {
	switch {
	case !secretName.MatchString(name):
		return errors.New("the name of a secret has letters, digits and _, and doesn't begin with a digit")
	case strings.HasPrefix(name, "GITHUB_"):
		return fmt.Errorf("the name %s is GitHub's: names of secrets don't begin with GITHUB_", name)
	case len(value) > maxSecret:
		return fmt.Errorf("the value of %s has %d bytes, more than the %d that GitHub keeps", name, len(value), maxSecret)
	}
	return nil
}

// missingSecrets are the secrets that a file looks up and the stand-in has not: they are empty in its jobs.
func (s *Server) missingSecrets(file *workflow.Workflow) []string {
	var missing []string
	for _, name := range file.Secrets {
		if _, ok := s.opts.Secrets[name]; !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

// SecretsWarning says which secrets of a run are not set; "" if all are.
func (v RunView) SecretsWarning() string {
	if len(v.MissingSecrets) == 0 {
		return ""
	}
	are := "secrets." + v.MissingSecrets[0] + " is"
	if len(v.MissingSecrets) > 1 {
		are = "secrets." + strings.Join(v.MissingSecrets, ", secrets.") + " are"
	}
	return fmt.Sprintf("%s not set, and empty in the jobs of %s. Set secrets in the file of --secrets-file", are, v.File)
}
