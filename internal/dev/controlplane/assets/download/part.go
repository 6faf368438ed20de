package download

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// part is a file that is not complete yet: path.part, with its origin in path.part.json.
type part struct{ path string }

// origin is what a part was read from. A part of another origin is never resumed.
type origin struct {
	URL string `json:"url"`
	// Validator is the ETag or the date of the response, for If-Range.
	Validator string `json:"validator"`
}

func (p part) originPath() string { return p.path + ".json" }

// resumable returns the size of what may be resumed, and with which validator; 0 if there is nothing.
func (p part) resumable(url string) (size int64, validator string) {
	data, err := os.ReadFile(p.originPath())
	var from origin
	if err != nil || json.Unmarshal(data, &from) != nil || from.URL != url || from.Validator == "" {
		return 0, ""
	}
	return p.size(), from.Validator
}

func (p part) size() int64 {
	info, err := os.Stat(p.path)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// begin empties the part, and records the origin of what will be written to it.
func (p part) begin(from origin) error {
	if err := p.remove(); err != nil {
		return err
	}
	data, err := json.Marshal(from)
	if err == nil {
		err = os.WriteFile(p.originPath(), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("recording the origin of a download: %w", err)
	}
	return nil
}

func (p part) remove() error {
	for _, path := range []string{p.path, p.originPath()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an unfinished download: %w", err)
		}
	}
	return nil
}

// open positions the part at offset, for writing.
func (p part) open(offset int64) (*os.File, error) {
	file, err := os.OpenFile(p.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("writing a download: %w", err)
	}
	if _, err = file.Seek(offset, io.SeekStart); err != nil {
		file.Close()
		return nil, fmt.Errorf("writing a download: %w", err)
	}
	return file, nil
}

// publish gives the verified part its name, after its content has reached the disk.
func (p part) publish(path string, mode os.FileMode) error {
	if err := os.Chmod(p.path, mode); err != nil {
		return fmt.Errorf("publishing a download: %w", err)
	}
	if err := Sync(p.path); err != nil {
		return err
	}
	if err := os.Rename(p.path, path); err != nil {
		return fmt.Errorf("publishing a download: %w", err)
	}
	if err := p.remove(); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync makes the content of a file, or the names in a directory, outlive a power failure.
func Sync(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}
