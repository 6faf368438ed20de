//go:build unix

package mac

import (
	"bytes"
	"context"
	"os"
	"path"
	"slices"
)

// needProcess are the commands that depend on their own process, or that end processes of the Mac.
var needProcess = map[string]bool{"sudo": true, "reboot": true, "shutdown": true, "ps": true, "pgrep": true, "killall": true}

// RunInside is Run in the caller's own process, for tests that run thousands of commands: it saves the start of a process. It returns done =
// false, without any effect, if the command needs a process of its own, if a script is installed, or if the path holds another program. Otherwise
// the result is that of Run. Both may be used on one Mac at the same time.
func (r Root) RunInside(ctx context.Context, user string, stdin []byte, at string, args ...string) (stdout, stderr []byte, exit int, done bool, err error) {
	const pipe = 32 << 10 // what a pipe takes without a reader
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

// isOurs reports whether the path holds the model's own executable. Tests replace commands or remove them.
func (r Root) isOurs(at string) bool {
	own, err := os.Stat(r.Path("/usr/libexec/" + internalName))
	if err != nil {
		return false
	}
	there, err := os.Stat(r.Path(at))
	return err == nil && os.SameFile(own, there)
}
