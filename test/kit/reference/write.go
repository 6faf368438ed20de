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
func Write(folder string, pages map[string]string, kept ...string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // documents
		return fmt.Errorf("making %s: %w", folder, err)
	}
	there, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", folder, err)
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
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil { //nolint:gosec // documents
			return fmt.Errorf("writing a page: %w", err)
		}
	}
	return nil
}
