package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync"
	"time"
)

// The index of times beside a log records when the log had which size: entries of two big-endian integers, nanoseconds since 1970 and
// bytes, neither of which ever decreases. The container writes to its log directly, so that no other process's exit breaks its standard
// output; the shim checks the log once a second and records each new size.
const (
	timesEntry    = 16
	timesInterval = time.Second
)

// fileClock is by how much the time of a file's last change may be behind the clock.
const fileClock = 20 * time.Millisecond

// timesWriter appends to an index.
type timesWriter struct {
	file *os.File
	last timeEntry
}

type timeEntry struct {
	at   int64 // nanoseconds since 1970
	size int64 // bytes of the log that had been written by then
}

// note records that the log had that size at that time.
func (w *timesWriter) note(at time.Time, size int64) error {
	if size <= w.last.size {
		return nil
	}
	// A clock that is put back must not bring the entries out of order.
	entry := timeEntry{at: max(at.UnixNano(), w.last.at), size: size}
	raw := binary.BigEndian.AppendUint64(nil, uint64(entry.at))
	if _, err := w.file.Write(binary.BigEndian.AppendUint64(raw, uint64(entry.size))); err != nil {
		return fmt.Errorf("writing the log's index of times: %w", err)
	}
	w.last = entry
	return nil
}

// keepTimes notes the log's sizes until stop is closed, and a last time then.
func keepTimes(log, times string, now func() time.Time, stop <-chan struct{}) (err error) {
	file, err := os.OpenFile(times, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := &timesWriter{file: file}
	tick := time.NewTicker(timesInterval)
	defer tick.Stop()
	for stopped := false; !stopped; {
		select {
		case <-tick.C:
		case <-stop:
			stopped = true
		}
		info, err := os.Stat(log)
		if err != nil {
			return fmt.Errorf("inspecting the log: %w", err)
		}
		// The clock is read after the size: what the size counts was written before that time, never after.
		if err := w.note(now(), info.Size()); err != nil {
			return err
		}
	}
	return nil
}

// timesReader looks an index up.
type timesReader struct{ file io.ReaderAt }

// offsetAt returns the size that the log had at the last check before t. Bytes after it were written later than that check.
func (r timesReader) offsetAt(t time.Time, indexSize, logSize int64) (int64, error) {
	if t.Unix() < 0 { // long ago: perhaps too long for a number of nanoseconds
		return 0, nil
	}
	n := int(indexSize / timesEntry) // an entry that is being written, or was cut short, does not count
	var failed error
	later := sort.Search(n, func(i int) bool {
		entry, err := r.entry(i)
		failed = errors.Join(failed, err)
		return entry.at >= t.UnixNano()
	})
	if failed != nil || later == 0 {
		return 0, failed
	}
	entry, err := r.entry(later - 1)
	return min(entry.size, logSize), err
}

func (r timesReader) entry(i int) (timeEntry, error) {
	raw := make([]byte, timesEntry)
	if _, err := r.file.ReadAt(raw, int64(i)*timesEntry); err != nil {
		return timeEntry{}, fmt.Errorf("reading the log's index of times: %w", err)
	}
	return timeEntry{at: int64(binary.BigEndian.Uint64(raw)), size: int64(binary.BigEndian.Uint64(raw[8:]))}, nil
}

// containerLog implements sandbox.Log.
type containerLog struct{ log, times lateFile }

func openLog(log, times string) *containerLog {
	return &containerLog{log: lateFile{path: log}, times: lateFile{path: times}}
}

// ReadAt implements sandbox.Log.
func (l *containerLog) ReadAt(p []byte, off int64) (int, error) {
	file, _, err := l.log.open()
	switch {
	case err != nil:
		return 0, err
	case file == nil:
		return 0, io.EOF
	}
	return file.ReadAt(p, off)
}

// Size implements sandbox.Log.
func (l *containerLog) Size() (int64, error) {
	file, info, err := l.log.open()
	if file == nil {
		return 0, err
	}
	return info.Size(), nil
}

// OffsetAt implements sandbox.Log.
func (l *containerLog) OffsetAt(t time.Time) (int64, error) {
	log, info, err := l.log.open()
	if log == nil {
		return 0, err
	}
	if info.ModTime().Add(fileClock).Before(t) { // nothing was written since
		return info.Size(), nil
	}
	times, index, err := l.times.open()
	if times == nil {
		return 0, err
	}
	return timesReader{times}.offsetAt(t, index.Size(), info.Size())
}

// Close implements sandbox.Log.
func (l *containerLog) Close() error { return errors.Join(l.log.close(), l.times.close()) }

// lateFile is one that may not be there yet: a container is on record before it comes to write.
type lateFile struct {
	path string

	mu   sync.Mutex
	file *os.File
}

// open opens the file if it exists, and returns its present state.
func (f *lateFile) open() (*os.File, fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		file, err := os.Open(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		f.file = file
	}
	info, err := f.file.Stat()
	if err != nil {
		return nil, nil, err
	}
	return f.file, info, nil
}

func (f *lateFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
