package agent

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel kill the runner when the supervisor is killed: a runner without one would work on in
// a container that is thought to be dead.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// seen is a process as /proc shows it.
type seen struct {
	pid, parent, group int
	name, state        string
}

// processes lists what runs on this machine, or in this container.
func processes() []seen {
	entries, _ := filepath.Glob("/proc/[0-9]*/stat")
	var all []seen
	for _, entry := range entries {
		stat, err := os.ReadFile(entry)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent group …; the name may hold anything, parentheses included
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || end < open {
			continue
		}
		p := seen{name: string(stat[open+1 : end])}
		if n, _ := fmt.Sscan(string(stat[end+1:]), &p.state, &p.parent, &p.group); n != 3 {
			continue
		}
		if p.pid, err = strconv.Atoi(string(bytes.TrimSpace(stat[:open]))); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// seesWorkers reports whether workerRuns can tell.
const seesWorkers = true

// workerRuns reports whether GitHub's runner has started its worker, which it does for a job only. It comes before
// the hook, which runs when the job's actions have been fetched, and where the image's own hook could not be chained to.
func workerRuns(group int) bool {
	return slices.ContainsFunc(processes(), isWorker(group))
}

// workerName is what GitHub calls the process that runs one job.
const workerName = "Runner.Worker"

func isWorker(group int) func(seen) bool {
	return func(p seen) bool { return p.name == workerName && p.group == group && p.state != "Z" }
}

// hookRunByWorker says whether the hook of the job's start was run by a worker, whose name it leaves. The job may have made the
// file into something else, which must not stop the reader.
func (f files) hookRunByWorker() bool {
	marker, err := os.OpenFile(f.jobStarted, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = marker.Close() }()
	if info, err := marker.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	name, err := io.ReadAll(io.LimitReader(marker, int64(len(workerName)+2)))
	return err == nil && string(name) == workerName+"\n"
}

// listenerOf is the process that has started the worker, and takes jobs; 0 if there is none that may be stopped.
func listenerOf(group int) int {
	all := processes()
	at := slices.IndexFunc(all, isWorker(group))
	if at < 0 {
		return 0
	}
	listener := slices.IndexFunc(all, func(p seen) bool { return p.pid == all[at].parent && p.group == group })
	if listener < 0 {
		return 0
	}
	return all[listener].pid
}

// reapOrphans reaps the zombie children of this process, except the runner, which another goroutine waits for.
func reapOrphans(runner int) {
	self := os.Getpid()
	for _, p := range processes() {
		if p.parent == self && p.state == "Z" && p.pid != runner {
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil) // our child is not reaped yet, so its PID is not reused
		}
	}
}
