package docs

import "strings"

// Test is a test function of this repository, and the directory of its package.
type Test struct{ Folder, Name string }

// Executed are commands that a test of another package runs as they are written, each with a test the sources of whose package have it, word
// by word.
func Executed() map[string]Test {
	release := Test{"test/realnode", "TestRelease"}
	executed := map[string]Test{}
	for _, command := range []string{
		"helm install bullpen charts/bullpen --namespace bullpen-system --values values.yaml", "helm test bullpen --namespace bullpen-system",
		"helm upgrade bullpen charts/bullpen --namespace bullpen-system --values values.yaml", "helm rollback bullpen --namespace bullpen-system",
		"helm uninstall bullpen --namespace bullpen-system --timeout 6h",
	} {
		executed[command] = release
	}
	return executed
}

// plain are programs of the system that filter or make text: what they print is for people, and nothing of ours can break them.
var plain = []string{"grep", "sort", "head", "jq", "base64", "openssl", "date", "cat", "echo", "export", "source", "wc", "command", "mktemp", "xargs"}

// reading are the administrators' commands that change nothing: a test runs them against a fleet as they are written.
var reading = []string{"status", "jobs", "job", "why", "pools", "pool get", "pool list", "runners", "usage", "audit", "accounts list", "accounts get", "events"}

// Reads says whether a program is one of the administrators' commands that test/e2e runs against its fleet, and with which
// arguments: placeholders become names of that fleet. Commands that run until they are stopped, or name another cluster,
// are not.
func Reads(words []string, fleet *strings.Replacer) (args []string, is bool) {
	if len(words) < 2 || words[0] != "bullpen" && words[0] != "bin/bullpen" {
		return nil, false
	}
	line := strings.Join(words[1:], " ")
	if strings.HasPrefix(line, "runners get ") {
		return nil, false // the pod is one of another fleet
	}
	for _, command := range reading {
		if line != command && !strings.HasPrefix(line, command+" ") {
			continue
		}
		for _, word := range words[1:] {
			flag, _, _ := strings.Cut(word, "=")
			switch flag {
			case "--watch", "-w", "--server", "--context", "--kubeconfig", "--system-namespace", "--follow", "-f", "logs":
				return nil, false
			}
			args = append(args, fleet.Replace(word))
		}
		return args, true
	}
	return nil, false
}
