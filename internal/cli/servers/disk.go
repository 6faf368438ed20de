package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// EnvFile is the variable that names the configuration file.
const EnvFile = "BULLPEN_CONFIG"

// maxSize bounds a configuration file.
const maxSize = 1 << 20

// Path is where the configuration file is.
func Path(getenv func(string) string) (string, error) {
	if path := getenv(EnvFile); path != "" {
		return path, nil
	}
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) { // others are ignored, as the XDG specification says
		return filepath.Join(dir, "bullpen", "config.yaml"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".config", "bullpen", "config.yaml"), nil
	}
	return "", errors.New("no directory for the configuration file: set " + EnvFile + ", XDG_CONFIG_HOME or HOME")
}

// Load reads a configuration file. One that does not exist is empty.
func Load(path string) (File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return File{Servers: map[string]Server{}}, nil
	case err != nil:
		return File{}, fmt.Errorf("reading the configuration: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxSize:
		return File{}, &Error{Path: path, Problem: "not a regular file of at most 1 MiB"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(path, text)
}

// Save replaces a configuration file: a reader sees the old or the new content. A symbolic link keeps its place.
func Save(path string, file File) error {
	text, err := Format(file)
	if err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	written, err := os.CreateTemp(filepath.Dir(path), ".config-*") // mode 0600
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	defer func() { _ = os.Remove(written.Name()) }() // after the rename there is nothing to remove
	_, err = written.Write(text)
	if err = errors.Join(err, written.Sync(), written.Close()); err == nil {
		err = os.Rename(written.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}
