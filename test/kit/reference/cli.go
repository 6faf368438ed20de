package reference

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const written = "<!-- Written by make generate; the tests compare. -->\n"

// others are the programs beside bullpen. The test of each holds this list and its page to it: OwnPage.
var others = []struct{ name, short string }{
	{"bullpen-migrate", "Convert other projects' manifests to Bullpen's"},
}

// Others are the files of the pages that OwnPage makes for the programs beside bullpen.
func Others() []string {
	var files []string
	for _, program := range others {
		files = append(files, program.name+".md")
	}
	return files
}

// OwnPage is the file and the page of a program beside bullpen: all its commands on one.
func OwnPage(root *cobra.Command) (file, page string) {
	return root.Name() + ".md", commandPage(root)
}

// commandPage describes a command and all below it.
func commandPage(cmd *cobra.Command) string {
	var page strings.Builder
	page.WriteString("# " + cmd.CommandPath() + "\n\n" + written)
	writeCommand(&page, cmd)
	for _, sub := range below(cmd) {
		page.WriteString("\n## " + sub.CommandPath() + "\n")
		writeCommand(&page, sub)
	}
	return page.String()
}

// CLI is the pages of docs/reference/cli by file name: one for each command of the root, so that two changes seldom meet, and an index.
// Development commands have a section of their own. The same tree gives the same pages.
func CLI(root *cobra.Command, development func(*cobra.Command) bool) map[string]string {
	pages := map[string]string{}
	var production, developing, beside strings.Builder
	for _, cmd := range root.Commands() {
		if cmd.Hidden || cmd.Name() == "help" {
			continue
		}
		name := cmd.Name() + ".md"
		pages[name] = commandPage(cmd)
		index := &production
		if development(cmd) {
			index = &developing
		}
		fmt.Fprintf(index, "| [%s](%s) | %s |\n", cmd.CommandPath(), name, cell(cmd.Short))
	}
	for _, program := range others {
		fmt.Fprintf(&beside, "| [%s](%[1]s.md) | %s |\n", program.name, program.short)
	}
	pages["README.md"] = "# Commands\n\n" + written + `
One program, ` + "`bullpen`" + `, has every process of Bullpen and the administrators' commands. ` + "`--help`" + ` prints these pages. Runner pods start
` + "`bullpen-agent`" + `, which has only the commands of [bullpen agent](agent.md).

**Exit codes.** 0: success. 1: failure; standard error has the reason and what to do. Other codes are on the page of their command.
**Output.** ` + "`-o`" + ` selects a table, a wide table, JSON or YAML, which have the fields of the [API](../api.md). Commands that list rows, or get one,
also print names, JSONPath templates and custom columns, with the meaning that kubectl gives them. Colours are shown on terminals, unless ` + "`NO_COLOR`" + ` is set.

| command | |
|---|---|
` + production.String() + `
## Development

` + "`make build`" + ` builds these. The container images do not have them.

| command | |
|---|---|
` + developing.String() + `
## Other programs

` + "`make build`" + ` builds these into ` + "`bin/`" + `. The container images do not have them.

| program | |
|---|---|
` + beside.String()
	return pages
}

// below are all commands below one, in order, each before its own.
func below(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" {
			continue
		}
		all = append(all, sub)
		all = append(all, below(sub)...)
	}
	return all
}

func writeCommand(b *strings.Builder, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" || strings.HasPrefix(cmd.CommandPath(), "bullpen completion ") { // the library's own words: shells' business
		text = cmd.Short + "."
	}
	b.WriteString("\n" + prose(text))
	b.WriteString("\n    " + cmd.UseLine() + "\n")
	if len(cmd.Aliases) > 0 {
		b.WriteString("\nAlso: `" + strings.Join(cmd.Aliases, "`, `") + "`.\n")
	}
	if subs := cmd.Commands(); len(subs) > 0 {
		b.WriteString("\n| below it | |\n|---|---|\n")
		for _, sub := range subs {
			if !sub.Hidden {
				fmt.Fprintf(b, "| [%s](#%s) | %s |\n", sub.CommandPath(), anchor(sub.CommandPath()), cell(sub.Short))
			}
		}
	}
	if cmd.Example != "" {
		b.WriteString("\nExamples:\n\n" + indent(cmd.Example, 2) + "\n")
	}
	writeFlags(b, cmd)
	if group := cmd.HasSubCommands() && !cmd.HasAvailableLocalFlags(); !group && !strings.Contains(text, "xit code") && !strings.Contains(text, "exits with") {
		b.WriteString("\nExit codes: 0 success, 1 failure.\n")
	}
}

// anchor is GitHub's of a heading that is a command.
func anchor(heading string) string { return strings.ReplaceAll(strings.ToLower(heading), " ", "-") }

func writeFlags(b *strings.Builder, cmd *cobra.Command) {
	header := "\n| flag | | default | |\n|---|---|---|---|\n"
	visit := func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" {
			return
		}
		name := "`--" + flag.Name + "`"
		if flag.Shorthand != "" {
			name = "`-" + flag.Shorthand + "`, " + name
		}
		kind, usage := pflag.UnquoteUsage(flag)
		if kind == "" {
			kind = flag.Value.Type()
		}
		value := ""
		switch flag.DefValue {
		case "", "[]", "0", "0s", "false":
		default:
			value = "`" + flag.DefValue + "`"
		}
		if _, required := flag.Annotations[cobra.BashCompOneRequiredFlag]; required {
			value = "required"
		}
		fmt.Fprintf(b, "%s| %s | %s | %s | %s |\n", header, name, cell(kind), cell(value), cell(usage))
		header = ""
	}
	cmd.LocalFlags().VisitAll(visit)
	cmd.InheritedFlags().VisitAll(visit)
}

// cell is a text in a table: one line, and no end of the cell in it.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(strings.Fields(text), " "))
}

// prose is what a command says of itself as Markdown: indented lines are shown as they are.
func prose(text string) string {
	var b strings.Builder
	code := false
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
		if indented != code && strings.TrimSpace(line) != "" {
			b.WriteString("\n")
			code = indented
		}
		switch {
		case strings.TrimSpace(line) == "":
			b.WriteString("\n")
		case indented:
			b.WriteString("  " + strings.ReplaceAll(line, "\t", "  ") + "\n")
		default:
			b.WriteString(strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(line) + "\n")
		}
	}
	return collapse(b.String())
}

// collapse leaves one empty line where there are more.
func collapse(text string) string {
	for strings.Contains(text, "\n\n\n") {
		text = strings.ReplaceAll(text, "\n\n\n", "\n\n")
	}
	return text
}

func indent(text string, by int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		if strings.TrimSpace(line) == "" {
			lines[i] = ""
			continue
		}
		lines[i] = strings.Repeat(" ", by) + strings.ReplaceAll(line, "\t", "    ")
	}
	return strings.Join(lines, "\n")
}
