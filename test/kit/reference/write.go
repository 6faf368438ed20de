package reference

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Write makes a directory hold these pages, those that are kept, and no others.
func Write(dir string, pages map[string]string, kept ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // documents
		return fmt.Errorf("making %s: %w", dir, err)
	}
	there, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, file := range there {
		if _, stays := pages[filepath.Base(file)]; stays || slices.Contains(kept, filepath.Base(file)) {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a page of what is gone: %w", err)
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // documents
			return fmt.Errorf("writing a page: %w", err)
		}
	}
	return nil
}
