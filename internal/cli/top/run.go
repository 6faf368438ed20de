package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// ErrNoTerminal is the error of Run if its input or output is not a terminal.
var ErrNoTerminal = errors.New("`bullpen top` needs a terminal. For a pipe or a file use `bullpen status --watch`")

// Run shows the fleet until the user quits or ctx ends, neither of which is an error, and restores the terminal. The first read happens before:
// its error (no server, no right) is returned. Later errors are shown, and retried.
func Run(ctx context.Context, source Source, every time.Duration, in, out *os.File) error {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) || os.Getenv("TERM") == "dumb" {
		return ErrNoTerminal
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	first, err := read(ctx, source, time.Now)
	if err != nil {
		return err
	}
	m := model{
		read:  func() (Fleet, error) { return read(ctx, source, time.Now) },
		why:   func(job int64) (adminapi.Why, error) { return source.Why(ctx, job) },
		every: max(every, time.Second), fleet: first, known: true,
	}
	m.settle()
	// The program's own context already ends with the signals that end it.
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()).Run()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("showing the fleet: %w", err)
	}
	return nil
}
