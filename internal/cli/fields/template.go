package fields

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Template is a JSONPath template: text, and expressions in braces.
type Template struct{ text string }

// ParseTemplate reads a template. Text without an expression is rejected, because it would print itself.
func ParseTemplate(text string) (Template, error) {
	if !strings.Contains(text, "{") {
		return Template{}, ErrSyntax
	}
	if _, err := compile(text); err != nil {
		return Template{}, err
	}
	return Template{text}, nil
}

// Write writes the template with the fields of a value, or nothing if that fails. A missing field is empty, and no line end is added.
func (t Template) Write(w io.Writer, value any) error {
	compiled, err := compile(t.text)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := compiled.Execute(&out, value); err != nil {
		return fmt.Errorf("applying the template: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}
