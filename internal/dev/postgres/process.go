package postgres

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// end signals the server and, when it takes too long, cuts it off and in the end kills its whole group. It returns after
// the server was reaped.
func end(ctx context.Context, server *childproc.Child, first syscall.Signal) error {
	const patience, immediatePatience = 30 * time.Second, 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	server.Signal(first)
	select {
	case <-server.Done():
		return nil
	case <-ctx.Done():
	}
	server.Stop(context.WithoutCancel(ctx), syscall.SIGQUIT, immediatePatience)
	return fmt.Errorf("stopping PostgreSQL: it had to be cut off: %w", ctx.Err())
}

func tail(file string, lines int) string {
	f, err := os.Open(file)
	if err != nil {
		return "(unreadable)"
	}
	defer func() { _ = f.Close() }()
	const most = 4096
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return lastLines(string(text), lines)
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > count {
		lines = lines[len(lines)-count:]
	}
	return strings.Join(lines, " | ")
}
