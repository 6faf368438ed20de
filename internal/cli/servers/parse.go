package servers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// Error is a mistake in a configuration file.
type Error struct {
	Path    string
	Line    int // 0: unknown
	Problem string
}

// Error begins with the place.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Path + ": " + e.Problem
	}
	return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Problem)
}

// Parse reads the content of the file at path. Unknown fields, and values of the wrong type, are errors.
func Parse(path string, text []byte) (File, error) {
	p, file := parser{path}, File{Servers: map[string]Server{}}
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return file, nil
	}
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			return File{}, p.fail(&more, "the file must have one YAML document")
		}
	}
	if !errors.Is(err, io.EOF) {
		return File{}, &Error{Path: path, Problem: "invalid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	root := document.Content[0]
	if root.ShortTag() == "!!null" {
		return file, nil
	}
	var current *yaml.Node
	err = p.mapping(root, "the file", map[string]func(*yaml.Node) error{
		"current": func(value *yaml.Node) (err error) {
			current = value
			file.Current, err = p.text(value, "current")
			return err
		},
		"servers": func(value *yaml.Node) (err error) { file.Servers, err = p.servers(value); return err },
	})
	if err != nil {
		return File{}, err
	}
	if _, err := file.Find(file.Current, path); current != nil && err != nil {
		return File{}, p.fail(current, fmt.Sprintf("current names the server %q, which is not in servers", file.Current))
	}
	return file, nil
}

type parser struct{ path string }

func (p parser) fail(at *yaml.Node, problem string) error {
	return &Error{Path: p.path, Line: at.Line, Problem: problem}
}

func (p parser) servers(node *yaml.Node) (map[string]Server, error) {
	servers := map[string]Server{}
	if node.ShortTag() == "!!null" {
		return servers, nil
	}
	err := p.each(node, "servers", func(key, value *yaml.Node) error {
		if err := CheckName(key.Value); err != nil {
			return p.fail(key, err.Error())
		}
		server, err := p.server(key, value)
		servers[key.Value] = server
		return err
	})
	return servers, err
}

func (p parser) server(key, node *yaml.Node) (Server, error) {
	var server Server
	if node.ShortTag() == "!!null" {
		return server, nil
	}
	known := map[string]func(*yaml.Node) error{}
	for _, field := range fields() {
		known[field.name] = func(value *yaml.Node) (err error) {
			*field.of(&server), err = p.text(value, field.name)
			return err
		}
	}
	if err := p.mapping(node, "server "+key.Value, known); err != nil {
		return Server{}, err
	}
	if err := server.Check(); err != nil {
		return Server{}, p.fail(key, "server "+key.Value+": "+err.Error())
	}
	return server, nil
}

// mapping reads the fields of a mapping.
func (p parser) mapping(node *yaml.Node, what string, known map[string]func(*yaml.Node) error) error {
	return p.each(node, what, func(key, value *yaml.Node) error {
		read, found := known[key.Value]
		if found {
			return read(value)
		}
		names := make([]string, 0, len(known))
		for name := range known {
			names = append(names, name)
		}
		text := fmt.Sprintf("unknown field %q of %s", key.Value, what)
		if near := commandline.Near(key.Value, names); len(near) > 0 {
			text += ". Did you mean " + strings.Join(near, " or ") + "?"
		}
		return p.fail(key, text)
	})
}

// each visits the entries of a mapping; each key once.
func (p parser) each(node *yaml.Node, what string, visit func(key, value *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return p.fail(node, what+" must be a mapping")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" || value.Kind == yaml.AliasNode:
			return p.fail(key, "aliases and merged mappings are not supported")
		case seen[key.Value]:
			return p.fail(key, fmt.Sprintf("%q is there twice", key.Value))
		}
		seen[key.Value] = true
		if err := visit(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (p parser) text(node *yaml.Node, name string) (string, error) {
	switch {
	case node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str":
		return "", p.fail(node, name+" must be a string. Numbers, true and false need quotes")
	case strings.TrimSpace(node.Value) == "":
		return "", p.fail(node, name+" is empty. Remove the line")
	case strings.ContainsFunc(node.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", p.fail(node, name+" must not contain control characters")
	}
	return node.Value, nil
}

// Format is the inverse of Parse.
func Format(file File) ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(file), encoder.Close()); err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	return text.Bytes(), nil
}
