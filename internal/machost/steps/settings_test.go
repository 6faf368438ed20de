package steps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

func payloadOf(c machost.Config) machost.Payload { return machost.Payload{Config: c.Default()} }

func stepOf(t *testing.T, make constructor, p machost.Payload, f Facts) machost.Step {
	t.Helper()
	step, err := make(p, f.withDefaults())
	require.NoError(t, err)
	return step
}

func goodMac(t *testing.T) *scripted {
	h := newScripted(t)
	h.says("/usr/bin/uname", "Darwin arm64\n")
	h.says("/usr/bin/sw_vers", "15.6\n")
	h.says("/usr/bin/fdesetup", "FileVault is Off.\n")
	h.says("/bin/df", "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/disk3s1 1 2 50000000 1% /\n")
	return h
}

func TestPreflight_SaysWhyAMacCannotBeAHost(t *testing.T) {
	step := stepOf(t, newPreflight, payloadOf(machost.Config{User: "ci"}), Facts{})
	h := goodMac(t)
	changed, err := h.converge(step)
	require.NoError(t, err)
	require.False(t, changed)
	for want, spoil := range map[string]func(h *scripted){
		"not a Mac with Apple silicon": func(h *scripted) { h.says("/usr/bin/uname", "Darwin x86_64\n") },
		"macOS 13.6 is too old":        func(h *scripted) { h.says("/usr/bin/sw_vers", "13.6\n") },
		"FileVault is on":              func(h *scripted) { h.says("/usr/bin/fdesetup", "FileVault is On.\n") },
		"Encryption in progress":       func(h *scripted) { h.says("/usr/bin/fdesetup", "Encryption in progress: FileVault is Off.\n") },
		"there is no user ci":          func(h *scripted) { h.fails("/usr/bin/dscl", 56, "eDSRecordNotFound") },
		"1024 MiB are free":            func(h *scripted) { h.says("/bin/df", "Filesystem\n/dev/disk3s1 1 2 1048576 99% /\n") },
		"reading the free disk space":  func(h *scripted) { h.says("/bin/df", "?") },
		"reading the version of macOS: unexpected output of sw_vers": func(h *scripted) { h.says("/usr/bin/sw_vers", "Sequoia\n") },
	} {
		h := goodMac(t)
		spoil(h)
		_, err := machost.Plan(t.Context(), machost.Options{Host: h, Steps: []machost.Step{step}})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "step preflight", "a plan says it, too")
	}
}

// settings is a program that stores the values that it receives.
func (h *scripted) settings(path string, get, set func(args string) (key, value string)) map[string]string {
	kept := map[string]string{}
	h.programs[path] = func(args, _ string) machost.Result {
		if key, value := set(args); key != "" {
			kept[key] = value
			return machost.Result{}
		}
		key, _ := get(args)
		if value, ok := kept[key]; ok {
			return machost.Result{Stdout: []byte(value + "\n")}
		}
		return machost.Result{ExitCode: 1, Stderr: []byte(key + ": not set")}
	}
	return kept
}

func TestHostname_SetsTheNamesThatDiffer(t *testing.T) {
	h := newScripted(t)
	kept := h.settings(scutil, func(args string) (string, string) { return strings.TrimPrefix(args, "--get "), "" }, func(args string) (string, string) {
		rest, is := strings.CutPrefix(args, "--set ")
		if !is {
			return "", ""
		}
		key, value, _ := strings.Cut(rest, " ")
		return key, value
	})
	kept["ComputerName"] = "mac-1"
	step := stepOf(t, newHostname, payloadOf(machost.Config{User: "ci", Hostname: "mac-1"}), Facts{})
	changed, err := h.converge(step)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, map[string]string{"ComputerName": "mac-1", "HostName": "mac-1", "LocalHostName": "mac-1"}, kept)
	require.NotContains(t, h.ran, scutil+" --set ComputerName mac-1", "what is right is left alone")
	require.Nil(t, stepOf(t, newHostname, payloadOf(machost.Config{User: "ci"}), Facts{}))
}

func TestNoSleep_ReadsEverySourceOfPowerAndWhatIsInForce(t *testing.T) {
	h := newScripted(t)
	custom := "Battery Power:\n sleep                1\n displaysleep         0\n disksleep            0\nAC Power:\n sleep                0 (sleep prevented by caffeinate)\n displaysleep         0\n disksleep            0\n"
	live := "System-wide power settings:\nCurrently in use:\n sleep                0 (sleep prevented by sshd)\n"
	h.programs[pmset] = func(args, _ string) machost.Result {
		switch args {
		case "-g custom":
			return machost.Result{Stdout: []byte(custom)}
		case "-g live":
			return machost.Result{Stdout: []byte(live)}
		case "-a sleep 0 disksleep 0 displaysleep 0 womp 1 autorestart 1":
			custom = strings.ReplaceAll(custom, " 1\n", " 0\n")
			return machost.Result{}
		}
		t.Errorf("pmset %s", args)
		return machost.Result{ExitCode: 1}
	}
	step := stepOf(t, newNoSleep, payloadOf(machost.Config{User: "ci"}), Facts{})
	changed, err := h.converge(step)
	require.NoError(t, err, "a portable Mac has neither womp nor autorestart")
	require.True(t, changed)
	live = strings.Replace(live, "0", "10", 1)
	_, err = h.converge(step)
	require.ErrorContains(t, err, "is not in force", "HOST-3: also where nothing differs")
}

func TestNoLock_HOST6_ThePasswordGoesByStandardInput(t *testing.T) {
	h := newScripted(t)
	locked := true
	h.programs[sudoProgram] = func(args, stdin string) machost.Result {
		switch args {
		case "-n -H -u ci /usr/sbin/sysadminctl -screenLock status":
			if locked {
				return machost.Result{Stderr: []byte("screenLock delay is immediate\n")}
			}
			return machost.Result{Stderr: []byte("screenLock is off\n")}
		case "-n -H -u ci /usr/sbin/sysadminctl -screenLock off -password -":
			locked = stdin != "hunter2\n"
			return machost.Result{}
		case "-n -H -u ci /usr/bin/defaults -currentHost read com.apple.screensaver idleTime":
			return machost.Result{Stdout: []byte("0\n")}
		}
		return machost.Result{}
	}
	h.fails(defaults, 1, "does not exist")
	p := payloadOf(machost.Config{User: "ci"})
	_, err := h.converge(stepOf(t, newNoLock, p, Facts{}))
	require.ErrorContains(t, err, "Give the password")
	p.Secrets.Password = machost.NewSecret("wrong")
	_, err = h.converge(stepOf(t, newNoLock, p, Facts{}))
	require.ErrorContains(t, err, "the screen lock is still on")
	p.Secrets.Password = machost.NewSecret("hunter2")
	changed, err := h.converge(stepOf(t, newNoLock, p, Facts{}))
	require.NoError(t, err)
	require.True(t, changed)
	for _, ran := range h.ran {
		require.NotContains(t, ran, "hunter2")
	}
}

func TestDHCPLease_AddsTheOneKey(t *testing.T) {
	h := newScripted(t)
	text := ""
	h.programs[defaults] = func(args, _ string) machost.Result {
		switch args {
		case "read " + sharingPlist + " bootpd":
			if text == "" {
				return machost.Result{ExitCode: 1}
			}
			return machost.Result{Stdout: []byte(text)}
		case "write " + sharingPlist + " bootpd -dict-add DHCPLeaseTimeSecs -int 900":
			text = "{\n    DHCPLeaseTimeSecs = 900;\n    other = 1;\n}\n"
			return machost.Result{}
		}
		t.Errorf("defaults %s", args)
		return machost.Result{ExitCode: 1}
	}
	step := stepOf(t, newDHCPLease, payloadOf(machost.Config{User: "ci", DHCPLeaseSeconds: 900}), Facts{})
	changed, err := h.converge(step)
	require.NoError(t, err)
	require.True(t, changed)
	text = "{\n    \"DHCPLeaseTimeSecs\" = \"86400\";\n}\n"
	diff, err := step.Check(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, []string{"set bootpd DHCPLeaseTimeSecs to 900: it is 86400"}, diff.Changes)
}

func TestBinary_IsWrittenBesideAndSignedThereWhenItIsNot(t *testing.T) {
	requireRoot(t)
	source := filepath.Join(t.TempDir(), "bullpen")
	require.NoError(t, os.WriteFile(source, []byte("program"), 0o600))
	h := newScripted(t)
	h.says(codesign, "")
	h.says(BinaryPath, "bullpen version 1\n")
	step := stepOf(t, newBinary, payloadOf(machost.Config{User: "ci"}), Facts{Binary: source})
	changed, err := h.converge(step)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "program", h.content(BinaryPath))

	// One without a signature gets one, and is still the desired one.
	require.NoError(t, os.WriteFile(source, []byte("program 2"), 0o600))
	h.programs[codesign] = func(args, _ string) machost.Result {
		if args == "--verify "+binaryNext {
			return machost.Result{ExitCode: 1}
		}
		require.Equal(t, "--force --sign - "+binaryNext, args, "never the file that processes run")
		h.put(binaryNext, "program 2, signed", 0o755)
		return machost.Result{}
	}
	changed, err = h.converge(step)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "program 2, signed", h.content(BinaryPath))
	_, err = h.Stat(binaryNext)
	require.True(t, isMissing(err))

	h.fails(BinaryPath, 137, "Killed: 9")
	_, err = h.converge(step)
	require.ErrorContains(t, err, "codesign", "HOST-3: macOS must accept it")
	_, err = newBinary(machost.Payload{}, Facts{})
	require.Error(t, err)
}

func TestLogRotation_OfAFolderOfRoots(t *testing.T) {
	requireRoot(t)
	h := newScripted(t)
	h.says(newsyslog, "")
	h.says("/usr/bin/dscl", "NFSHomeDirectory: /Users/ci\nPrimaryGroupID: 20\nUniqueID: 501\n")
	h.put(NodeLog, "earlier\n", 0o600) // of an agent that was started by hand
	p := payloadOf(machost.Config{User: "ci", Hostname: "mac-1"})
	changed, err := h.converge(stepOf(t, newLogRotation, p, Facts{}))
	require.NoError(t, err)
	require.True(t, changed)
	require.Contains(t, h.content(newsyslogFile), NodeLog+"\t501:20\t644\t5\t51200\t*\tZN\n")
	require.Equal(t, "earlier\n", h.content(NodeLog))
	info, err := h.Stat(NodeLog)
	require.NoError(t, err)
	require.Equal(t, machost.Attributes{Mode: 0o644, UID: 501, GID: 20}, info.Attributes)
	info, err = h.Stat(logDir)
	require.NoError(t, err)
	require.Equal(t, machost.Attributes{Mode: 0o755}, info.Attributes)

	h.fails(newsyslog, 1, "bad line")
	_, err = h.converge(stepOf(t, newLogRotation, p, Facts{}))
	require.ErrorContains(t, err, newsyslogFile)
	h.says(newsyslog, "")
	p.Config.Node.Off = true
	_, err = h.converge(stepOf(t, newLogRotation, p, Facts{}))
	require.NoError(t, err)
	_, err = h.Stat(newsyslogFile)
	require.True(t, isMissing(err))
}

func TestMachines_CountsWhatRuns(t *testing.T) {
	h := newScripted(t)
	for text, want := range map[string]int{
		"/sbin/launchd\n": 0,
		"tart run a\n/usr/local/bin/tart run b --no-graphics\n/usr/local/bin/tart list\nvim tart run.txt\nstart run\n":                                                                    2,
		"/System/Library/Frameworks/Virtualization.framework/Versions/A/XPCServices/com.apple.Virtualization.VirtualMachine.xpc/Contents/MacOS/com.apple.Virtualization.VirtualMachine\n": 1,
	} {
		h.says("/bin/ps", text)
		running, err := Machines(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, want, running, text)
	}
	h.fails("/bin/ps", 1, "no")
	_, err := Machines(t.Context(), h)
	require.Error(t, err)
}

func TestFor_ListsTheStepsInOrderAndNothingOfABadConfiguration(t *testing.T) {
	good := machost.Payload{Config: machost.Config{User: "ci", Hostname: "mac-1"}}
	list, err := For(good, Facts{Binary: "/x"})
	require.NoError(t, err)
	var names []string
	for _, step := range list {
		names = append(names, step.Name())
	}
	require.Equal(t, "preflight", names[0])
	require.Less(t, indexOf(names, "sudo"), indexOf(names, "auto-login"))
	require.Less(t, indexOf(names, "binary"), indexOf(names, "node-agent"))
	require.Less(t, indexOf(names, "tart"), indexOf(names, "node-agent"))
	require.Less(t, indexOf(names, "auto-login"), indexOf(names, "node-agent"))
	require.Less(t, indexOf(names, "log-rotation"), indexOf(names, "node-agent"))
	require.Equal(t, "ssh-guard", names[len(names)-1], "HOST-7: what could close the way in comes last")
	_, err = For(machost.Payload{}, Facts{Binary: "/x"})
	var problems *machost.ConfigError
	require.ErrorAs(t, err, &problems)
}

func indexOf(names []string, name string) int {
	for i, have := range names {
		if have == name {
			return i
		}
	}
	return -1
}
