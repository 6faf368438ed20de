package options

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// Error returns the sentences, one a line.
func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }

// parser collects what options say. Problems do not stop it, so that all of them are reported at once.
type parser struct {
	container string
	pool      Pool
	options   Options
	problems  []string
	healthSet string // the first of --health-*
}

// Parse reads the options of a container. The container's name is for texts: job, or the service's. It returns *Error.
func Parse(container, text string, pool Pool) (Options, error) {
	p := &parser{container: container, pool: pool}
	words, err := Split(text)
	if err != nil {
		return Options{}, &Error{Problems: []string{fmt.Sprintf("Options of container '%s' are invalid: %s.", container, unclosed)}}
	}
	flags := pflag.NewFlagSet("options", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.SortFlags = false
	for _, rule := range rules {
		value := &ruleValue{parser: p, rule: rule}
		flag := flags.VarPF(value, rule.name, rule.short, "")
		if rule.boolean {
			flag.NoOptDefVal = "true"
		}
	}
	p.fail(flags.Parse(words))
	for _, argument := range flags.Args() {
		p.problems = append(p.problems, fmt.Sprintf("Options of container '%s' have '%s', which is no option. Put double quotes around values with spaces.", container, argument))
	}
	if p.options.Health.Disabled && p.healthSet != "" {
		p.problems = append(p.problems, fmt.Sprintf("Option '--no-healthcheck' of container '%s' can't be used with '--%s'. Remove one of them.", container, p.healthSet))
	}
	if len(p.problems) > 0 {
		return Options{}, &Error{Problems: p.problems}
	}
	return p.options, nil
}

// fail notes an error of pflag. Those of values were noted when they were set.
func (p *parser) fail(err error) {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var bad *pflag.InvalidSyntaxError
	switch {
	case err == nil, errors.As(err, &invalid):
	case errors.Is(err, pflag.ErrHelp):
		p.unknown("--help")
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		p.unknown("-" + unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		p.unknown("--" + unknown.GetSpecifiedName())
	case errors.As(err, &missing):
		p.problems = append(p.problems, fmt.Sprintf("Option '--%s' of container '%s' needs a value.", missing.GetFlag().Name, p.container))
	case errors.As(err, &bad):
		p.unknown(bad.GetSpecifiedFlag())
	default:
		p.problems = append(p.problems, fmt.Sprintf("Options of container '%s' are invalid.", p.container))
	}
}

func (p *parser) unknown(option string) {
	p.problems = append(p.problems, fmt.Sprintf("Option '%s' is not known to this runner.", option))
}

// ruleValue is what pflag sets when an option occurs.
type ruleValue struct {
	parser *parser
	rule   rule
}

func (v *ruleValue) String() string { return "" }

func (v *ruleValue) Type() string {
	if v.rule.boolean {
		return "bool"
	}
	return "string"
}

// Set applies one option. It returns no error, so that the others are read, too.
func (v *ruleValue) Set(text string) error {
	use := used{parser: v.parser, rule: v.rule, value: text}
	if v.rule.boolean {
		on, known := boolean(text)
		if !known {
			use.invalid("must be true or false")
			return nil
		}
		if !on {
			return nil
		}
	}
	v.rule.apply(use)
	return nil
}

func boolean(text string) (on, known bool) {
	switch strings.ToLower(text) {
	case "true", "t", "1":
		return true, true
	case "false", "f", "0":
		return false, true
	}
	return false, false
}

// used is one occurrence of an option.
type used struct {
	parser *parser
	rule   rule
	value  string
}

// text is the option as in the workflow, or nearly so.
func (u used) text() string {
	if u.rule.boolean {
		return "--" + u.rule.name
	}
	return "--" + u.rule.name + " " + u.value
}

func (u used) options() *Options { return &u.parser.options }

func (u used) invalid(why string) {
	u.parser.problems = append(u.parser.problems, fmt.Sprintf("Option '%s' of container '%s' is invalid: %s.", u.text(), u.parser.container, why))
}

func (u used) warn(why string) {
	u.parser.options.Warnings = append(u.parser.options.Warnings, fmt.Sprintf("Option '%s' has no effect: %s.", u.text(), why))
}

// refuse notes an option that this runner can't give. why is empty, or begins with a colon.
func (u used) refuse(why string) {
	u.parser.problems = append(u.parser.problems,
		fmt.Sprintf("Option '%s' of container '%s' is not available on this runner%s. Remove it, or use a pool that permits docker.", u.text(), u.parser.container, why))
}
