package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	runbooksDir = "../../docs/runbooks"
	runbooksURL = "https://github.com/bullpen-ci/bullpen/blob/main/docs/runbooks/"
)

// alert is the part of an alert that tests check.
type alert struct {
	Alert       string
	Expr        string
	Labels      struct{ Severity string }
	Annotations struct {
		Summary     string `json:"summary"`
		Description string `json:"description"`
		RunbookURL  string `json:"runbook_url"`
	}
}

func readAlerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile("../../charts/bullpen/monitoring/alerts.yaml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	var all []alert
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// runbooks are the pages by name, README.md among them.
func runbooks(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(runbooksDir, "*"))
	require.NoError(t, err)
	pages := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		pages[filepath.Base(file)] = string(text)
	}
	return pages
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ .*$`)
	indexRow = regexp.MustCompile(`^\| \[(\w+)\]\((\w+)\.md\) \| \S`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every alert has a page that says what to do, in the same four steps; and no page is left of an alert that was removed.
func TestRunbooks_EveryAlertHasOneAndEveryOneAnAlert(t *testing.T) {
	pages := runbooks(t)
	index := pages["README.md"]
	require.NotEmpty(t, index)
	delete(pages, "README.md")
	var severity string
	severities := map[string]string{} // by alert, as the index has them
	for _, line := range strings.Split(index, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			severity = strings.ToLower(title)
		} else if row := indexRow.FindStringSubmatch(line); row != nil {
			require.Equal(t, row[1], row[2], "the index links another page than it names")
			severities[row[1]] = severity
		}
	}
	for _, one := range readAlerts(t) {
		name := one.Alert + ".md"
		require.Equal(t, runbooksURL+name, one.Annotations.RunbookURL, one.Alert)
		page, there := pages[name]
		require.True(t, there, "%s has no runbook", one.Alert)
		require.Equal(t, []string{"# " + one.Alert, "## Meaning", "## Diagnosis", "## Mitigation", "## Resolved when"}, heading.FindAllString(page, -1), name)
		capital := strings.ToUpper(one.Labels.Severity[:1]) + one.Labels.Severity[1:]
		require.Contains(t, page, "# "+one.Alert+"\n\n"+capital+": ", "%s does not say what the alert says", name)
		for _, section := range heading.Split(page, -1)[1:] {
			require.NotEmpty(t, strings.TrimSpace(section), "%s has an empty section", name)
		}
		require.Equal(t, one.Labels.Severity, severities[one.Alert], "the index has %s under another severity, or not at all", one.Alert)
		delete(pages, name)
		delete(severities, one.Alert)
	}
	require.Empty(t, pages, "pages without an alert")
	require.Empty(t, severities, "rows of the index without an alert")
}

// A command that is typed from a page at night exists, with the flags that the page gives it.
func TestRunbooks_NameCommandsThatExist(t *testing.T) {
	looked := map[string]bool{}
	for name, page := range runbooks(t) {
		for _, words := range commandsIn(page) {
			cmd, rest, err := newRootCommand().Find(words)
			require.NoError(t, err, "%s: bullpen %s", name, strings.Join(words, " "))
			require.NotEqual(t, newRootCommand().CommandPath(), cmd.CommandPath(), "%s: bullpen %s", name, strings.Join(words, " "))
			if cmd.HasSubCommands() && len(rest) > 0 {
				require.True(t, strings.HasPrefix(rest[0], "-"), "%s: %s has no %s", name, cmd.CommandPath(), rest[0])
			}
			require.NoError(t, cmd.ParseFlags(rest), "%s: bullpen %s", name, strings.Join(words, " "))
			looked[cmd.CommandPath()] = true
		}
	}
	for _, want := range []string{"bullpen accounts list", "bullpen accounts set-limits", "bullpen jobs", "bullpen why", "bullpen audit"} {
		require.True(t, looked[want], "no runbook was read, or none says %q: %v", want, looked)
	}
}

func TestRunbooks_CommandsAreFoundInBlocksAndInSentences(t *testing.T) {
	require.Equal(t, [][]string{
		{"jobs", "--state", "queued"}, {"no-such"}, {"why", "JOB"}, {"accounts", "suspend", "A", "--reason", "too many", "--limit", "1"},
	}, commandsIn("Say\n\n    bullpen jobs --state queued | head\n\nor `bullpen why JOB`, `helm rollback bullpen --namespace n`,\n"+
		"`bullpen accounts suspend A --reason \"too many\" --limit N`, bullpen is fine, `kubectl -n bullpen-system get pods`\n\n    X=1 bullpen no-such  # not\n"))
}

var (
	codeBlock = regexp.MustCompile(`(?m)^    (.*)$`)
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	ours      = regexp.MustCompile(`(?:^|[|;&(]) *(?:[A-Z_]+=\S+ )*bullpen +([^|;&#)]+)`)
	word      = regexp.MustCompile(`"[^"]*"|\S+`)
)

// commandsIn are the words after each "bullpen" that is a command of a page's code.
func commandsIn(page string) [][]string {
	var code []string
	for _, found := range slices.Concat(codeBlock.FindAllStringSubmatch(page, -1), codeSpan.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1)) {
		code = append(code, strings.TrimSpace(found[1]))
	}
	var commands [][]string
	for _, text := range code {
		for _, found := range ours.FindAllStringSubmatch(text, -1) {
			var words []string
			for _, one := range word.FindAllString(found[1], -1) {
				if one == "N" { // stands for a number
					one = "1"
				}
				words = append(words, strings.Trim(one, `"`))
			}
			commands = append(commands, words)
		}
	}
	return commands
}

// A link of a page leads to a page, and to a heading of it.
func TestRunbooks_LinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	looked := 0
	for name, page := range runbooks(t) {
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			looked++
			text, err := os.ReadFile(filepath.Join(runbooksDir, found[1]))
			require.NoError(t, err, "%s links %s", name, found[1])
			if found[2] != "" {
				require.Contains(t, anchors(string(text)), found[2], "%s links a heading of %s", name, found[1])
			}
		}
	}
	require.Greater(t, looked, 50)
}

// anchors are those of a page's headings, as GitHub makes them.
func anchors(page string) []string {
	var all []string
	for _, line := range heading.FindAllString(page, -1) {
		title := strings.ToLower(strings.TrimLeft(line, "# "))
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(title, ""), " ", "-"))
	}
	return all
}
