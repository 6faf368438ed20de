package machost

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"
)

// ParseConfig reads the YAML, or JSON, that people write. Unknown and repeated fields are refused. Nothing is validated yet.
func ParseConfig(text []byte) (Config, error) {
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	config, err := decodeConfig(document)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return config, nil
}

func decodeConfig(document []byte) (Config, error) {
	// The decoder does not say which field holds a network that it cannot read.
	var fields map[string]any
	if err := json.Unmarshal(document, &fields); err == nil {
		if problems := networkProblems(reflect.TypeFor[Config](), fields, ""); len(problems) > 0 {
			return Config{}, &ConfigError{problems}
		}
	}
	var config Config
	err := decodeStrictly(document, &config)
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return Config{}, &ConfigError{[]FieldProblem{{kind.Field, fmt.Sprintf("a %s is no %s", kind.Value, kind.Type)}}}
	}
	return config, err
}

// networkProblems finds, in a decoded document, the networks that cannot be read.
func networkProblems(of reflect.Type, fields map[string]any, prefix string) []FieldProblem {
	var problems []FieldProblem
	for i := range of.NumField() {
		field := of.Field(i)
		name := jsonName(field)
		switch value := fields[name].(type) {
		case map[string]any:
			if field.Type.Kind() == reflect.Struct {
				problems = append(problems, networkProblems(field.Type, value, prefix+name+".")...)
			}
		case []any:
			if field.Type != reflect.TypeFor[[]netip.Prefix]() {
				continue
			}
			for j, item := range value {
				text, _ := item.(string)
				if _, err := netip.ParsePrefix(text); err != nil {
					problems = append(problems, FieldProblem{fmt.Sprintf("%s%s[%d]", prefix, name, j), fmt.Sprintf("%q is no network: write it as 10.1.0.0/16", text)})
				}
			}
		}
	}
	return problems
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
