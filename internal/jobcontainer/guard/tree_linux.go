package guard

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// seen is a process of the container as /proc shows it.
type seen struct {
	pid, parent, group, session int
	zombie                      bool
	started                     uint64 // in the kernel's ticks since its boot
}

// readStat reads /proc/PID/stat (proc_pid_stat(5)): pid (name) state ppid pgrp session … starttime, which is field 22.
func readStat(pid int) (seen, bool) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return seen{}, false
	}
	s, ok := parseStat(content)
	s.pid = pid
	return s, ok
}

func parseStat(content []byte) (s seen, ok bool) {
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:])) // the name may hold anything
	if len(fields) < 20 {
		return seen{}, false
	}
	s.zombie = fields[0] == "Z" || fields[0] == "X"
	var errs [4]error
	s.parent, errs[0] = strconv.Atoi(fields[1])
	s.group, errs[1] = strconv.Atoi(fields[2])
	s.session, errs[2] = strconv.Atoi(fields[3])
	s.started, errs[3] = strconv.ParseUint(fields[19], 10, 64)
	return s, errs == [4]error{}
}

// processes lists what runs in the container.
func processes() []seen {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	var all []seen
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, found := readStat(pid); found {
			all = append(all, s)
		}
	}
	return all
}

// root is what a tree of processes is found from.
type root struct {
	pid     int
	started uint64
	// orphans says that processes without their parent which are younger than the root belong to its tree, unless another child of the guard
	// has them. Nothing else tells whose they are, once they have sessions of their own.
	orphans bool
}

// precedes reports whether the process was started after the root. A tick is long, usually 10 ms: in the same one the kernel's numbers decide,
// which grow but for their wrap-around.
func (r root) precedes(s seen) bool {
	return s.started > r.started || s.started == r.started && s.pid > r.pid
}

// members returns what belongs to the tree of r and is alive: its root, their descendants, what is in its session or process group, and
// orphans. known are the children of the guard, of which each has a tree of its own.
func members(r root, all []seen, known map[int]bool) []int {
	below := map[int][]seen{}
	var found []int
	reached := map[int]bool{}
	var take func(s seen)
	take = func(s seen) {
		if reached[s.pid] {
			return
		}
		reached[s.pid] = true
		if !s.zombie {
			found = append(found, s.pid)
		}
		for _, child := range below[s.pid] {
			take(child)
		}
	}
	for _, s := range all {
		below[s.parent] = append(below[s.parent], s)
	}
	for _, s := range all {
		if s.pid == 1 || s.pid != r.pid && known[s.pid] {
			continue
		}
		orphan := r.orphans && s.parent == 1 && r.precedes(s)
		if s.pid == r.pid || s.group == r.pid || s.session == r.pid || orphan {
			take(s)
		}
	}
	return found
}

const (
	// killPatience bounds the time for killing a tree. What is left then cannot be killed now, such as in a read from a dead disk; it
	// dies with the container.
	killPatience = 10 * time.Second
	// freezeAfter is after how many passes everything in the container is stopped first: a process that forks faster than it is found.
	freezeAfter = 5
	// killPause is the wait between two passes, in which the kernel ends what was killed.
	killPause = 2 * time.Millisecond
)

// killTree kills the tree of a root until nothing of it is left, or killPatience is over.
func (c *children) killTree(r root) {
	limit := time.Now().Add(killPatience)
	for pass := 0; time.Now().Before(limit); pass++ {
		freeze := pass >= freezeAfter && os.Getpid() == 1
		if freeze {
			_ = unix.Kill(-1, unix.SIGSTOP) // at once for all: what is stopped does not fork
		}
		victims := members(r, processes(), c.known())
		for _, pid := range victims {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if freeze {
			_ = unix.Kill(-1, unix.SIGCONT)
		}
		if len(victims) == 0 {
			return
		}
		<-time.After(killPause)
		c.reap()
	}
}
