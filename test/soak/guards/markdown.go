package guards

import (
	"fmt"
	"strings"
)

// Markdown is the table as the guide has it.
func Markdown() string {
	var text strings.Builder
	text.WriteString("| switched off | keeps | what the product does then | while | must be found |\n|---|---|---|---|---|\n")
	for _, g := range Table() {
		off := g.Off
		if g.Covers != "" {
			off += " (" + g.Covers + ")"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", g.Name, g.Invariant, off, g.Scenario.Says, strings.Join(g.Rows, ", "))
	}
	return text.String()
}
