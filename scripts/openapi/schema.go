package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// words are what the sources say of types and fields, and the values of those types that have constants.
type words struct {
	says  map[string]string // of Type and Type.Field
	enums map[string][]string
}

// readWords reads the package of the API's types.
func readWords(dir string) (words, error) {
	w := words{says: map[string]string{}, enums: map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return w, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return w, err
		}
		for _, declaration := range parsed.Decls {
			if general, is := declaration.(*ast.GenDecl); is {
				w.read(general)
			}
		}
	}
	return w, nil
}

func (w words) read(declaration *ast.GenDecl) {
	for _, spec := range declaration.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			w.says[s.Name.Name] = flow(declaration.Doc.Text() + s.Doc.Text())
			if structure, is := s.Type.(*ast.StructType); is {
				for _, field := range structure.Fields.List {
					for _, name := range field.Names {
						w.says[s.Name.Name+"."+name.Name] = flow(field.Doc.Text() + " " + field.Comment.Text())
					}
				}
			}
		case *ast.ValueSpec:
			kind, is := s.Type.(*ast.Ident)
			if !is || declaration.Tok != token.CONST {
				continue
			}
			for _, value := range s.Values {
				if literal, is := value.(*ast.BasicLit); is && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						w.enums[kind.Name] = append(w.enums[kind.Name], text)
					}
				}
			}
		}
	}
}

func flow(text string) string { return strings.Join(strings.Fields(text), " ") }

// object is a piece of the document: keys are written in order.
type object = map[string]any

// schemas collects those of Go's types under their names.
type schemas struct {
	words words
	all   object
	// closed is while a body is described: the API refuses one with fields that are not there.
	closed bool
}

func (s *schemas) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{"description": "Any JSON."}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		s.structure(t)
		return object{"$ref": "#/components/schemas/" + t.Name()}
	case reflect.String:
		text := object{"type": "string"}
		if values := s.words.enums[t.Name()]; len(values) > 0 {
			text["enum"] = values
		}
		return text
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Int32:
		return object{"type": "integer", "format": "int32"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	panic(fmt.Sprintf("a field of the API is a %s: say in scripts/openapi what that is in JSON", t))
}

// structure adds a struct's schema.
func (s *schemas) structure(t reflect.Type) {
	if _, done := s.all[t.Name()]; done {
		return
	}
	properties := object{}
	one := object{"type": "object", "properties": properties}
	if s.closed {
		one["additionalProperties"] = false
	}
	if says := s.words.says[t.Name()]; says != "" {
		one["description"] = says
	}
	s.all[t.Name()] = one
	var required []string
	for field := range fields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || name == "" {
			continue
		}
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
		property := s.of(field.Type)
		if says := s.words.says[t.Name()+"."+field.Name]; says != "" {
			if reference, is := property["$ref"]; is { // nothing may stand beside one
				property = object{"allOf": []any{object{"$ref": reference}}}
			}
			property["description"] = says
		}
		properties[name] = property
	}
	if len(required) > 0 {
		one["required"] = required
	}
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}
