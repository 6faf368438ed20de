package arcmigration

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// WriteYAML writes the converted objects, a document each, and above each its source and what needs attention.
func (r *Result) WriteYAML(w io.Writer) error {
	for i, c := range r.made {
		var text bytes.Buffer
		if i > 0 {
			text.WriteString("---\n")
		}
		where := fmt.Sprintf("%s, document %d", c.file, c.number)
		if c.base != "" {
			where += ", " + c.base
		}
		comment(&text, fmt.Sprintf("From %s in %s, line %d", c.object.Reference, where, c.root.line))
		for _, note := range c.notes {
			comment(&text, note)
		}
		content, err := yaml.Marshal(c.made)
		if err != nil {
			return fmt.Errorf("writing %s: %w", c.object.Into, err)
		}
		text.Write(content)
		if _, err := w.Write(text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// comment writes a line that stays one, whatever is in it.
func comment(text *bytes.Buffer, line string) {
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
			return ' '
		}
		return r
	}, line)
	text.WriteString("# " + line + "\n")
}
