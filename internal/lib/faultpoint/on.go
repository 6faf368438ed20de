//go:build faultpoints

package faultpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this binary has fault points at all.
const Enabled = true

const (
	envDir    = "BULLPEN_FAULTPOINT_DIR"
	clockFile = "clock"
	clockRead = 100 * time.Millisecond
)

// Environment names the variables to pass on to other processes of this binary.
func Environment() []string { return []string{envDir} }

// passed counts how often a file's point was passed since the file was written.
type passed struct {
	since time.Time
	count int
}

var (
	mu     sync.Mutex
	counts = map[string]passed{}

	clockMu sync.Mutex
	skew    time.Duration
	readAt  time.Time
)

// Reached kills the process if a file says so. Safe for concurrent use.
func Reached(p Point) {
	dir := os.Getenv(envDir)
	if dir == "" {
		return
	}
	for _, file := range files(dir, string(p)) {
		if due(file) && os.Remove(file) == nil { // one process alone removes it
			fmt.Fprintf(os.Stderr, "faultpoint: %s reached, ending process %d\n", p, os.Getpid())
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // not one instruction more
		}
	}
}

// files are those that may name this process.
func files(dir, name string) []string {
	return []string{filepath.Join(dir, name+"."+strconv.Itoa(os.Getpid())), filepath.Join(dir, name)}
}

// due counts a passing of the file's point, and reports whether it is the one.
func due(file string) bool {
	info, err := os.Stat(file)
	if err != nil {
		return false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	nth, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		nth = 1
	}
	mu.Lock()
	defer mu.Unlock()
	now := counts[file]
	if !now.since.Equal(info.ModTime()) {
		now = passed{since: info.ModTime()}
	}
	now.count++
	counts[file] = now
	return now.count >= nth
}

// Now is the clock of this process: the time, and what a file adds to it.
func Now() time.Time {
	now := time.Now()
	dir := os.Getenv(envDir)
	if dir == "" {
		return now
	}
	clockMu.Lock()
	defer clockMu.Unlock()
	if now.Sub(readAt) >= clockRead {
		readAt, skew = now, 0
		for _, file := range files(dir, clockFile) {
			if data, err := os.ReadFile(file); err == nil {
				if skew, err = time.ParseDuration(strings.TrimSpace(string(data))); err == nil {
					break
				}
			}
		}
	}
	return now.Add(skew)
}
