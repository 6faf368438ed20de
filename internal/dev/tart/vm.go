//go:build unix

package tart

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// vmDir is where a VM's files are: a local VM's, or an image's.
type vmDir string

func (v vmDir) config() string  { return filepath.Join(string(v), "config.json") }
func (v vmDir) disk() string    { return filepath.Join(string(v), "disk.img") }
func (v vmDir) nvram() string   { return filepath.Join(string(v), "nvram.bin") }
func (v vmDir) saved() string   { return filepath.Join(string(v), "state.vzvmsave") }
func (v vmDir) control() string { return filepath.Join(string(v), controlSocket) }

// controlSocket is a file's name because the path of a socket may have about a hundred bytes only: its user changes the
// working directory to the VM's.
const controlSocket = "control.sock"

// vmConfig is config.json. Its keys are those of Tart, except for those of the fake.
type vmConfig struct {
	Version    int     `json:"version"`
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
	CPUCount   int     `json:"cpuCount"`
	CPUMin     int     `json:"cpuCountMin"`
	Memory     int64   `json:"memorySize"` // bytes
	MemoryMin  int64   `json:"memorySizeMin"`
	MAC        string  `json:"macAddress"`
	ECID       string  `json:"ecid"`
	Display    display `json:"display"`
	DiskFormat string  `json:"diskFormat"`

	Image  Image  `json:"faketartImage"`
	Digest string `json:"faketartDigest,omitempty"`
}

type display struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

const (
	megabyte = 1 << 20
	gigabyte = 1_000_000_000
)

func newConfig(image Image, digest string) vmConfig {
	return vmConfig{
		Version: 1, OS: image.OS, Arch: "arm64", CPUCount: 4, CPUMin: 2, Memory: 8192 * megabyte, MemoryMin: 4096 * megabyte,
		MAC: randomMAC(), ECID: randomSerial(), Display: display{1024, 768}, DiskFormat: "raw", Image: image, Digest: digest,
	}
}

func randomMAC() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	b[0] = b[0]&^1 | 2  // locally administered, for one station
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}

func randomSerial() string { return rand.Text() }

// create makes the files of a VM.
func (v vmDir) create(c vmConfig) error {
	if err := os.MkdirAll(string(v), 0o700); err != nil {
		return err
	}
	if err := v.write(c); err != nil {
		return err
	}
	if err := os.WriteFile(v.nvram(), []byte("nvram"), 0o600); err != nil {
		return err
	}
	disk, err := os.OpenFile(v.disk(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(disk.Truncate(int64(c.Image.DiskGB)*gigabyte), disk.Close()) // a hole: it takes no space
}

// write changes config.json in place: a new file would not have the lock of the process that runs the VM.
func (v vmDir) write(c vmConfig) error {
	encoded, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(v.config(), encoded, 0o600)
}

// read opens a VM: all three files have to be there (Tart 4.3).
func (v vmDir) read() (vmConfig, error) {
	var c vmConfig
	for _, path := range []string{v.config(), v.disk(), v.nvram()} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return c, message("corrupt", "")
		}
	}
	encoded, err := os.ReadFile(v.config())
	if err == nil {
		err = json.Unmarshal(encoded, &c)
	}
	return c, err
}

func (v vmDir) exists() bool {
	_, err := os.Stat(string(v))
	return err == nil
}

// copyFrom copies an image or a VM; its hardware identity comes along (Tart 4.2).
func (v vmDir) copyFrom(source vmDir) error {
	if _, err := source.read(); err != nil {
		return err
	}
	info, err := os.Stat(source.disk())
	if err != nil {
		return err
	}
	for _, file := range []string{"config.json", "nvram.bin"} {
		if err := copyFile(filepath.Join(string(source), file), filepath.Join(string(v), file)); err != nil {
			return err
		}
	}
	disk, err := os.OpenFile(v.disk(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(disk.Truncate(info.Size()), disk.Close())
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// The states of a VM (Tart 4.2).
const (
	stateRunning   = "running"
	stateSuspended = "suspended"
	stateStopped   = "stopped"
)

// state depends on the lock of the process that runs it: a VM that runs without one is stopped, for Tart
// (tart#967).
func (v vmDir) state() (string, error) {
	pid, err := holder(v.config())
	if err != nil {
		return "", err
	}
	if pid != 0 {
		return stateRunning, nil
	}
	if _, err := os.Stat(v.saved()); err == nil {
		return stateSuspended, nil
	}
	return stateStopped, nil
}
