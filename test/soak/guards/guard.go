package guards

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Guard is one protection of the product, and how to switch it off.
type Guard struct {
	// Name is what it is chosen by.
	Name string
	// Invariant is the rule, or rules, that it keeps: their ids.
	Invariant string
	// Off says in a few words what the product then no longer does.
	Off string
	// Edits switch it off. Several stand together where one protection makes up for the other: Covers says which.
	Edits []Edit
	// Covers says what else would have to fail, and why the guard does not stand alone; empty where it does.
	Covers string
	// Scenario provokes it.
	Scenario Scenario
	// Rows of the checker's table that must not be zero then.
	Rows []string
}

// Edit replaces a text of a file, which must be there exactly once. An empty New removes it.
type Edit struct {
	// File is relative to the module's root.
	File     string
	Old, New string
}

// ErrNotOnce: the text that an edit replaces is not there, or more than once. The product has changed, and the table has to
// follow.
var ErrNotOnce = errors.New("the text to replace is not there exactly once")

// Weaken returns the files that switch the guard off, by their paths relative to root.
func (g Guard) Weaken(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range g.Edits {
		text, read := files[e.File]
		if !read {
			data, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("switching off %s: %w", g.Name, err)
			}
			text = string(data)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("switching off %s: %w: %d times in %s: %q", g.Name, ErrNotOnce, n, e.File, e.Old)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}

// Root is the directory of the module that dir lies in.
func Root(dir string) (string, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		above := filepath.Dir(at)
		if above == at {
			return "", fmt.Errorf("there is no go.mod above %s: run this inside of the repository", dir)
		}
		at = above
	}
}
