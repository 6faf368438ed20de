package options

import "strings"

// ParseEnvFile reads a file of --env-file: NAME=value or NAME on each line, without quotes, and # for comments. It returns the number
// of the first line that is neither, or 0.
func ParseEnvFile(data []byte) ([]Variable, int) {
	var variables []Variable
	text := strings.TrimPrefix(string(data), "\ufeff")
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, given := strings.Cut(line, "=")
		if name == "" || strings.ContainsAny(name, " \t") || strings.ContainsRune(line, 0) {
			return nil, i + 1
		}
		variables = append(variables, Variable{Name: name, Value: value, FromRunner: !given})
	}
	return variables, 0
}
