//go:build unix

package mac

import (
	"bytes"
	"context"
	"os"
	"path"
	"slices"
)

// needProcess are the commands that are told from others by the process that they run in, or end those of the Mac.
var needProcess = map[string]bool{"sudo": true, "reboot": true, "shutdown": true, "ps": true, "pgrep": true, "killall": true}

// RunInside is Run in the caller's own process, which costs a tenth of starting one: for tests that give thousands of commands. It reports
// false, and has done nothing, where the command needs a process: because of what it is, because a script says what becomes of it, or because
// what lies at the path is another program. It does as a process of the same name would in everything else; a Mac that is worked on so may have commands
// run as processes beside it.
func (r Root) RunInside(ctx context.Context, user string, stdin []byte, at string, args ...string) (stdout, stderr []byte, exit int, done bool, err error) {
	const pipe = 32 << 10 // what a pipe takes before anybody reads
	name := path.Base(at)
	runsAnother := name == "launchctl" && slices.Contains(args, "asuser")
	if _, is := table()[at]; !is || needProcess[name] || runsAnother || len(stdin) > pipe || !r.isOurs(at) {
		return nil, nil, 0, false, nil
	}
	var s Script
	if err := r.read(scriptFile, &s); err != nil || len(s.Rules) > 0 {
		return nil, nil, 0, false, err
	}
	input, fill, err := os.Pipe()
	if err != nil {
		return nil, nil, 0, false, err
	}
	defer input.Close()
	if _, err := fill.Write(stdin); err != nil {
		_ = fill.Close()
		return nil, nil, 0, false, err
	}
	if err := fill.Close(); err != nil {
		return nil, nil, 0, false, err
	}
	var out, problems bytes.Buffer
	c := &call{
		Program: Program{Executable: r.Path(at), Args: args, Stdin: input, Stdout: &out, Stderr: &problems},
		root:    r, name: name, user: user,
	}
	exit = c.toItsEnd(ctx)
	return out.Bytes(), problems.Bytes(), exit, true, nil
}

// isOurs says whether the model's own executable lies there: tests put other programs, or nothing, in the place of a command.
func (r Root) isOurs(at string) bool {
	own, err := os.Stat(r.Path("/usr/libexec/" + internalName))
	if err != nil {
		return false
	}
	there, err := os.Stat(r.Path(at))
	return err == nil && os.SameFile(own, there)
}
