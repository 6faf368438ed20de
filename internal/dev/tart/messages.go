//go:build unix

package tart

import (
	"errors"
	"fmt"
)

// Exit codes (Tart 4.1).
const (
	codeFailed   = 1  // any other error
	codeNoSuchVM = 2  // the VM does not exist, does not run, or runs already
	codeUsage    = 64 // bad arguments
)

// failure is the failed end of a command: its message on stderr, and the exit code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func failed(code int, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// Messages are the answers of Tart 4.3 that a rule can ask for by name. %s stands for the name that the command is about.
var Messages = map[string]struct {
	Code int
	Text string
}{
	"not-found":         {codeNoSuchVM, `the specified VM "%s" does not exist`},
	"no-digest":         {codeFailed, `OCI storage error: %s is not a digest and doesn't point to a digest`},
	"not-running":       {codeNoSuchVM, `VM "%s" is not running`},
	"already-running":   {codeNoSuchVM, `VM "%s" is already running!`},
	"running":           {codeFailed, `VM "%s" is running`},
	"limit":             {codeFailed, `The number of VMs exceeds the system limit`},
	"limit-others":      {codeFailed, `The number of VMs exceeds the system limit (other running VMs: first, second)`},
	"limit-old":         {codeFailed, `Error: Error Domain=VZErrorDomain Code=6 "The maximum supported number of active virtual machines has been reached."`},
	"no-ip":             {codeFailed, `no IP address found`},
	"no-ip-running":     {codeFailed, `no IP address found, is your VM running?`},
	"no-guest-agent":    {codeFailed, `Failed to connect to the VM using its control socket: connection refused, is the Tart Guest Agent running?`},
	"corrupt":           {codeFailed, `VM is missing some of its files (config.json, disk.img or nvram.bin)`},
	"not-terminated":    {codeFailed, `failed to forcefully terminate the VM "%s"`},
	"auxiliary-storage": {codeFailed, `Error: Error Domain=VZErrorDomain Code=2 "Failed to lock auxiliary storage."`},
	"softnet":           {codeFailed, `Softnet failed: root privileges are required`},
	"softnet-missing":   {codeFailed, `softnet not found in PATH`},
	"softnet-ended":     {codeFailed, `Softnet process terminated prematurely`},
	"keychain":          {codeFailed, `Error: Keychain returned unsuccessful status -25308: User interaction is not allowed.`},
	"session-key":       {codeFailed, `Error: SecKeyCreateRandomKey_ios failed: Failed to generate keypair`},
	"session-host-key":  {codeFailed, `Error: Error Domain=VZErrorDomain Code=-9 "Failed to create new HostKey."`},
	// Not in 4.3: what a full disk and a registry say, in the words of the system's errors.
	"no-space":       {codeFailed, `Error: The file couldn’t be saved because there isn’t enough space. (NSPOSIXErrorDomain error 28 - No space left on device)`},
	"image-missing":  {codeFailed, `Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 404, details: "MANIFEST_UNKNOWN: %s")`},
	"image-private":  {codeFailed, `Error: AuthFailed(why: "received unexpected HTTP status code 401 while retrieving an authentication token", details: "%s")`},
	"network":        {codeFailed, `Error: Error Domain=NSURLErrorDomain Code=-1001 "The request timed out."`},
	"unknown":        {codeFailed, `Error: something unprecedented`},
	"list-race":      {codeFailed, `Error: The file “config.json” couldn’t be opened because there is no such file.`},
	"unexpected-vm":  {codeFailed, `Error: unexpected argument %s`},
	"bad-arguments":  {codeUsage, "Error: Unexpected argument '%s'\nUsage: tart <subcommand>\n  See 'tart --help' for more information."},
	"lock-timed-out": {codeFailed, `Error: failed to lock: Operation timed out`},
}

// message is one of Messages about a VM or an image.
func message(key, name string) error {
	m := Messages[key]
	return &failure{code: m.Code, text: fill(m.Text, name)}
}

func isCorrupt(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.text == Messages["corrupt"].Text
}
