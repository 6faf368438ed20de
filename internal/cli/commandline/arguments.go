package commandline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// argument is one in a command's synopsis.
type argument struct {
	name               string
	optional, repeated bool
}

type argumentList []argument

// arguments reads a synopsis such as "set-limits ACCOUNT" or "arc FILE...". It is not known what words after -- may be: their command
// checks them.
func arguments(synopsis string) (list argumentList, known bool) {
	words := strings.Fields(synopsis)[1:]
	for i := 0; i < len(words); i++ {
		word, optional := strings.CutPrefix(words[i], "[")
		word = strings.TrimSuffix(word, "]")
		switch {
		case word == "--":
			return nil, false
		case strings.HasPrefix(word, "--"): // a flag, and its value if it has one
			if i+1 < len(words) && words[i+1] == strings.ToUpper(words[i+1]) {
				i++
			}
			continue
		}
		name, repeated := strings.CutSuffix(word, "...")
		list = append(list, argument{name: name, optional: optional, repeated: repeated})
	}
	return list, true
}

// check compares the number of arguments with the synopsis. An empty one counts as missing.
func (l argumentList) check(cmd *cobra.Command, given []string, hints map[string]string) error {
	for i, wanted := range l {
		if wanted.optional || len(given) > i && given[i] != "" {
			continue
		}
		text := fmt.Sprintf("missing argument %s: write `%s %s`", wanted.name, cmd.CommandPath(), l)
		if hint := hints[wanted.name]; hint != "" {
			text += ". " + hint
		}
		return errors.New(text)
	}
	if len(given) <= len(l) || len(l) > 0 && l[len(l)-1].repeated {
		return nil
	}
	if len(l) == 0 {
		return fmt.Errorf("`%s` takes no arguments, got %q. See `%s --help`", cmd.CommandPath(), given[0], cmd.CommandPath())
	}
	return fmt.Errorf("too many arguments: `%s %s` takes %d, got %d: %q", cmd.CommandPath(), l, len(l), len(given), given)
}

// String is the synopsis after the command's name.
func (l argumentList) String() string {
	words := make([]string, len(l))
	for i, a := range l {
		words[i] = a.name
		if a.repeated {
			words[i] += "..."
		}
		if a.optional {
			words[i] = "[" + words[i] + "]"
		}
	}
	return strings.Join(words, " ")
}
