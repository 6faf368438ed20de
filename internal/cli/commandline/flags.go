package commandline

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ValueError is what the Set of a flag's own type returns: what a value must be, such as "1 or more". The flag and the value are named by
// the message that is made of it.
type ValueError struct{ Must string }

// Error is the requirement alone.
func (e ValueError) Error() string { return "must be " + e.Must }

// kinds say what a value of the library's types must be.
var kinds = map[string]string{
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "uint": "a whole number, 0 or more", "uint64": "a whole number, 0 or more",
	"float64": "a number", "bool": "true or false", "duration": "a duration such as 30s, 5m or 2h",
}

// flagError translates what the library says of a command line.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var malformed *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &valueless):
		return fmt.Errorf("--%s needs a value. See `%s --help`", valueless.GetFlag().Name, cmd.CommandPath())
	case errors.As(err, &invalid):
		return invalidValue(invalid)
	case errors.As(err, &malformed):
		return fmt.Errorf("invalid flag %q: write --name or --name=value", malformed.GetSpecifiedFlag())
	}
	return err
}

func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	if err.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("unknown flag -%s. See `%s --help`", err.GetSpecifiedName(), cmd.CommandPath())
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	near := Near(err.GetSpecifiedName(), names)
	for i, name := range near {
		near[i] = "--" + name
	}
	return errors.New("unknown flag --" + err.GetSpecifiedName() + suggestion(near, cmd))
}

func invalidValue(err *pflag.InvalidValueError) error {
	name, own := err.GetFlag().Name, ValueError{}
	switch kind := kinds[err.GetFlag().Value.Type()]; {
	case errors.As(err, &own):
		return fmt.Errorf("--%s %w, got %q", name, own, err.GetValue())
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s is out of range, got %q", name, err.GetValue())
	case kind != "":
		return fmt.Errorf("--%s must be %s, got %q", name, kind, err.GetValue())
	}
	return fmt.Errorf("--%s does not take %q: %w", name, err.GetValue(), err.Unwrap())
}

// The library's annotations of a flag, which it does not export. TestPrepare_FlagsThatBelongTogether fails if they change.
const (
	annotationTogether  = "cobra_annotation_required_if_others_set"
	annotationOneOf     = "cobra_annotation_one_required"
	annotationExclusive = "cobra_annotation_mutually_exclusive"
)

// checkGiven reports flags that are missing, or that exclude each other, before the library does.
func checkGiven(cmd *cobra.Command) error {
	var found error
	report := func(text string, args ...any) {
		if found == nil {
			found = fmt.Errorf(text, args...)
		}
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if marks := flag.Annotations[cobra.BashCompOneRequiredFlag]; len(marks) > 0 && marks[0] == "true" && !flag.Changed {
			report("missing flag --%s. See `%s --help`", flag.Name, cmd.CommandPath())
		}
		for _, group := range flag.Annotations[annotationOneOf] {
			if given, _ := split(cmd, group); len(given) == 0 {
				report("missing flag: give %s", list(strings.Fields(group), " or "))
			}
		}
		for _, group := range flag.Annotations[annotationExclusive] {
			if given, _ := split(cmd, group); len(given) > 1 {
				report("%s exclude each other: give one of them", list(given, " and "))
			}
		}
		for _, group := range flag.Annotations[annotationTogether] {
			if given, missing := split(cmd, group); len(given) > 0 && len(missing) > 0 {
				report("%s needs %s", list(given, " and "), list(missing, " and "))
			}
		}
	})
	return found
}

// split tells the flags of a group that were given from the others.
func split(cmd *cobra.Command, group string) (given, missing []string) {
	for _, name := range strings.Fields(group) {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			given = append(given, name)
		} else {
			missing = append(missing, name)
		}
	}
	return given, missing
}

func list(names []string, with string) string {
	return "--" + strings.Join(names, with+"--")
}
