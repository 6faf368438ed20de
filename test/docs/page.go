package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Block is one of code.
type Block struct {
	Page     string // from the top of the repository
	Line     int    // of its first line
	Language string // of a fence; empty: none was given, or it is indented
	Text     string
}

// At says where it is.
func (b Block) At() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Pages are all of them below the top of the repository but the frozen decisions, by path, and what is in them.
func Pages(top string) (map[string]string, error) {
	pages := map[string]string{}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			return nil, err
		}
		pages[name] = string(text)
	}
	err := filepath.WalkDir(filepath.Join(top, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		pages[filepath.ToSlash(name)] = string(text)
		return err
	})
	return pages, err
}

// Blocks are those of a page: between fences, or indented by four spaces after an empty line.
func Blocks(page, text string) []Block {
	var blocks []Block
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if fence := strings.TrimLeft(line, " "); strings.HasPrefix(fence, "```") {
			block := Block{Page: page, Line: i + 2, Language: strings.TrimSpace(strings.TrimPrefix(fence, "```"))}
			end := i + 1
			for end < len(lines) && !strings.HasPrefix(strings.TrimLeft(lines[end], " "), "```") {
				end++
			}
			block.Text = strings.Join(lines[i+1:end], "\n")
			blocks = append(blocks, block)
			i = end
			continue
		}
		if !strings.HasPrefix(line, "    ") || strings.TrimSpace(line) == "" || (i > 0 && strings.TrimSpace(lines[i-1]) != "") {
			continue
		}
		end := i
		for end < len(lines) && (strings.HasPrefix(lines[end], "    ") || strings.TrimSpace(lines[end]) == "") {
			end++
		}
		var inner []string
		for _, one := range lines[i:end] {
			inner = append(inner, strings.TrimPrefix(one, "    "))
		}
		blocks = append(blocks, Block{Page: page, Line: i + 1, Text: strings.TrimRight(strings.Join(inner, "\n"), "\n ")})
		i = end - 1
	}
	return blocks
}
