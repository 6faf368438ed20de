package fields

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Missing is shown for a field that a value does not have.
const Missing = "<none>"

// Column is one of custom columns.
type Column struct {
	Header string
	path   Path
}

// ParseColumns reads HEADER:FIELD,HEADER:FIELD. The fields must begin with one of the known names, if there are any.
func ParseColumns(text string, known []string) ([]Column, error) {
	var columns []Column
	for _, part := range splitOutside(text, ",") {
		header, expression, ok := strings.Cut(part, ":")
		if header = strings.TrimSpace(header); !ok || header == "" {
			return nil, ErrSyntax
		}
		path, err := ParsePath(expression, known)
		if err != nil {
			return nil, err
		}
		columns = append(columns, Column{Header: header, path: path})
	}
	return columns, nil
}

// splitOutside splits at separators that are not in brackets: [0,1] is one expression.
func splitOutside(text, separators string) []string {
	var parts []string
	depth, begin := 0, 0
	for i, r := range text {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case depth == 0 && strings.ContainsRune(separators, r): // each is one byte
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}

// Cell is the column's text of a value.
func (c Column) Cell(value any) (string, error) {
	found, err := c.path.Find(value)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return Missing, nil
	}
	texts := make([]string, len(found))
	for i, one := range found {
		if texts[i], err = text(one); err != nil {
			return "", err
		}
	}
	return strings.Join(texts, ","), nil
}

func text(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return Missing, nil
	case string:
		return value, nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	return string(encoded), nil
}
