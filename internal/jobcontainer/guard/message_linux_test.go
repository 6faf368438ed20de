package guard

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/terminationlog"
)

func TestTheTerminationMessageStaysSmall(t *testing.T) {
	for _, row := range []struct {
		name       string
		size, want int64
	}{
		{"a message of the largest size is kept", terminationlog.MaxSize, terminationlog.MaxSize},
		{"a larger one is emptied", terminationlog.MaxSize + 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "termination-log")
			if err := os.WriteFile(path, make([]byte, row.size), 0o600); err != nil {
				t.Fatal(err)
			}
			g := newGuard(Options{Log: slog.New(slog.DiscardHandler)})
			g.message = terminationlog.Open(path)
			ended, wakes, done := make(chan struct{}), make(chan os.Signal), make(chan bool, 1)
			go func() { done <- g.watch(ended, wakes) }()
			wakes <- os.Interrupt
			wakes <- os.Interrupt // it is received after the pass of the first
			close(ended)
			select {
			case asked := <-done:
				if asked {
					t.Fatal("the runner ended, and the guard reports a request")
				}
			case <-time.After(time.Minute):
				t.Fatal("the guard did not end")
			}
			if info, err := os.Stat(path); err != nil || info.Size() != row.want {
				t.Errorf("the message has %v bytes (%v), want %d", info.Size(), err, row.want)
			}
		})
	}
}

// The log has ended when the guard does.
func TestWhatHasFailedIsTheTerminationMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	if err := os.WriteFile(path, []byte("of the job"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGuard(Options{Log: slog.New(slog.DiscardHandler)})
	g.message = terminationlog.Open(path)
	left := errors.New("files are left")
	if err := errors.Join(g.failed(RunnerEndedError{}), g.failed(nil)); !errors.As(err, new(RunnerEndedError)) {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "of the job" {
		t.Fatalf("the message is %q (%v)", content, err)
	}
	if !errors.Is(g.failed(left), left) {
		t.Fatal("the error is lost")
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != left.Error() {
		t.Errorf("the message is %q (%v)", content, err)
	}
}
