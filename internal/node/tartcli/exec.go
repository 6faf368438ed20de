//go:build unix

package tartcli

import "fmt"

// ExecCommand returns the argument vector that runs a command in the guest, and its environment; the caller starts it. The guest needs
// Tart's guest agent. The exit code is ambiguous: the command's exit codes and Tart's own are the same numbers, so a caller that needs the
// command's has the guest report it by other means.
func (c *Client) ExecCommand(name string, command []string) (argv, env []string, err error) {
	if err := checkName("running a command in VM "+name, name); err != nil {
		return nil, nil, err
	}
	if len(command) == 0 {
		return nil, nil, fmt.Errorf("running a command in VM %s: there is no command", name)
	}
	argv = append(append([]string{}, c.opts.Command...), "exec", name)
	return append(argv, command...), append([]string{}, c.env...), nil
}
