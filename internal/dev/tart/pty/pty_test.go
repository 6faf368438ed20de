package pty_test

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/tart/pty"
)

func TestOpen_ProgramSeesATerminalOfTheSizeGiven(t *testing.T) {
	controller, terminal, err := pty.Open()
	require.NoError(t, err)
	defer controller.Close()
	require.NoError(t, pty.SetSize(controller, 101, 37))
	columns, rows, err := pty.Size(terminal)
	require.NoError(t, err)
	require.Equal(t, []uint16{101, 37}, []uint16{columns, rows})

	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `test -t 0 && test -t 1 && read line && echo "got $line"`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, terminal.Close())
	_, err = controller.WriteString("hello\n")
	require.NoError(t, err)
	lines := bufio.NewScanner(controller)
	require.True(t, lines.Scan())
	require.Equal(t, "hello", lines.Text(), "a terminal echoes")
	require.True(t, lines.Scan())
	require.Equal(t, "got hello", lines.Text())
	require.NoError(t, cmd.Wait())
	require.False(t, lines.Scan(), "reads end when the last user has gone")
}
