//go:build unix

package mac

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"howett.net/plist"
)

// jobPlist is what the model's launchd reads of a job's property list.
type jobPlist struct {
	Label                string            `plist:"Label"`
	Program              string            `plist:"Program"`
	ProgramArguments     []string          `plist:"ProgramArguments"`
	RunAtLoad            bool              `plist:"RunAtLoad"`
	KeepAlive            any               `plist:"KeepAlive"`
	UserName             string            `plist:"UserName"`
	AbandonProcessGroup  bool              `plist:"AbandonProcessGroup"`
	EnvironmentVariables map[string]string `plist:"EnvironmentVariables"`
	StandardOutPath      string            `plist:"StandardOutPath"`
	StandardErrorPath    string            `plist:"StandardErrorPath"`
	WorkingDirectory     string            `plist:"WorkingDirectory"`
	ThrottleInterval     int               `plist:"ThrottleInterval"`
	StartInterval        int               `plist:"StartInterval"`
	ExitTimeOut          int               `plist:"ExitTimeOut"`
	Disabled             bool              `plist:"Disabled"`
	SoftResourceLimits   map[string]any    `plist:"SoftResourceLimits"`
	HardResourceLimits   map[string]any    `plist:"HardResourceLimits"`
}

// launchd's own errors, with the numbers that launchctl exits with.
const (
	errnoNotPermitted  = 1
	errnoNoProcess     = 3
	errnoIO            = 5
	errnoInProgress    = 37
	errnoNoService     = 113
	errnoDisabled      = 119
	errnoBadOwnership  = 122
	errnoInvalidDomain = 125
)

var launchdErrors = map[int]string{
	errnoNotPermitted: "Operation not permitted", errnoNoProcess: "No such process", errnoIO: "Input/output error", errnoInProgress: "Operation already in progress",
	errnoNoService: "Could not find specified service", errnoDisabled: "Service is disabled", errnoBadOwnership: "Path had bad ownership/permissions",
	errnoInvalidDomain: "Domain does not support specified action",
}

// readJob reads a job's property list. launchd refuses one that another user than root owns, or may write.
func (r Root) readJob(path string) (jobPlist, []byte, error) {
	var job jobPlist
	real := r.Path(path)
	info, err := os.Stat(real)
	if err != nil {
		return job, nil, fmt.Errorf("%d: %w", errnoIO, err)
	}
	raw, _ := info.Sys().(*syscall.Stat_t)
	if raw.Uid != 0 && int(raw.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return job, nil, errBadOwnership
	}
	data, err := os.ReadFile(real)
	if err != nil {
		return job, nil, err
	}
	if _, err := plist.Unmarshal(data, &job); err != nil {
		return job, nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if job.Label == "" || job.Program == "" && len(job.ProgramArguments) == 0 {
		return job, nil, fmt.Errorf("%s: a job needs a Label, and a Program or ProgramArguments", path)
	}
	return job, data, nil
}

var errBadOwnership = errors.New(launchdErrors[errnoBadOwnership])

// keepAlive reports whether the job must be restarted after it has exited with that code.
func (j jobPlist) keepAlive(exit int) bool {
	switch keep := j.KeepAlive.(type) {
	case bool:
		return keep
	case map[string]any:
		if success, ok := keep["SuccessfulExit"].(bool); ok {
			return success == (exit == 0)
		}
		if crashed, ok := keep["Crashed"].(bool); ok {
			return crashed == (exit > 128)
		}
		return len(keep) > 0
	}
	return false
}

func (j jobPlist) throttle() time.Duration {
	if j.ThrottleInterval > 0 {
		return time.Duration(j.ThrottleInterval) * time.Second
	}
	return 10 * time.Second
}

// arguments are those that the process gets: paths of the Mac are changed to where they lie.
func (r Root) arguments(job jobPlist) (program string, args []string) {
	args = job.ProgramArguments
	program = job.Program
	if program == "" {
		program = args[0]
	}
	if len(args) == 0 {
		args = []string{program}
	}
	mapped := make([]string, len(args))
	for i, a := range args {
		mapped[i] = r.mapWord(a)
	}
	return r.Path(program), mapped
}

// mapWord changes an argument that is a path of the Mac, or a flag with one.
func (r Root) mapWord(word string) string {
	if name, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(name, "-") {
		return name + "=" + r.mapWord(value)
	}
	if !strings.HasPrefix(word, "/") {
		return word
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(word, "/"), "/")
	if _, err := os.Lstat(r.Path("/" + first)); err != nil || first == "" {
		return word
	}
	return r.Path(word)
}

// environment is what launchd gives a job of that user.
func (r Root) environment(user string, own map[string]string) []string {
	env := []string{"PATH=" + r.searchPath(false), "HOME=" + r.home(user), "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/sh", "TMPDIR=" + r.Path("/private/tmp") + "/", "DEVMAC_USER=" + user}
	for name, value := range own {
		words := strings.Split(value, ":")
		for i, w := range words {
			words[i] = r.mapWord(w)
		}
		value = strings.Join(words, ":")
		if name == "PATH" {
			value += ":/usr/bin:/bin" // this machine's shell and its tools
		}
		env = append(env, name+"="+value)
	}
	return env
}

// home is where a user's home directory lies.
func (r Root) home(user string) string {
	if user == "root" {
		return r.Path("/var/root")
	}
	return r.Path("/Users/" + user)
}

// searchPath finds the Mac's commands first, then this machine's.
func (r Root) searchPath(local bool) string {
	dirs := []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"}
	if local {
		dirs = append([]string{"/usr/local/bin"}, dirs...)
	}
	var all []string
	for _, d := range dirs {
		all = append(all, r.Path(d))
	}
	return strings.Join(append(all, "/usr/bin", "/bin", "/usr/sbin", "/sbin"), ":")
}
