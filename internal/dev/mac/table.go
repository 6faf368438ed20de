//go:build unix

package mac

import (
	"iter"
	"path"
)

// table is where each command lies, and what it does.
func table() map[string]command {
	return map[string]command{
		"/sbin/pfctl":               runPfctl,
		"/sbin/ifconfig":            runIfconfig,
		"/sbin/reboot":              runReboot,
		"/sbin/shutdown":            runReboot,
		"/bin/launchctl":            runLaunchctl,
		"/bin/ps":                   runPs,
		"/bin/hostname":             runHostname,
		"/bin/df":                   runDf,
		"/usr/bin/defaults":         runDefaults,
		"/usr/bin/pmset":            runPmset,
		"/usr/sbin/scutil":          runScutil,
		"/usr/sbin/systemsetup":     runSystemsetup,
		"/usr/sbin/sysadminctl":     runSysadminctl,
		"/usr/sbin/visudo":          runVisudo,
		"/usr/bin/sudo":             runSudo,
		"/usr/bin/sw_vers":          runSwVers,
		"/usr/bin/fdesetup":         runFdesetup,
		"/usr/bin/dscl":             runDscl,
		"/usr/bin/id":               runID,
		"/usr/bin/whoami":           runWhoami,
		"/usr/bin/stat":             runStat,
		"/usr/sbin/sysctl":          runSysctl,
		"/usr/bin/codesign":         runCodesign,
		"/usr/bin/xattr":            runXattr,
		"/usr/bin/plutil":           runPlutil,
		"/usr/bin/killall":          runKillall,
		"/usr/bin/pgrep":            runPgrep,
		"/usr/bin/uname":            runUname,
		"/usr/sbin/newsyslog":       runNewsyslog,
		"/usr/sbin/ioreg":           runIoreg,
		"/usr/sbin/system_profiler": runSystemProfiler,
	}
}

// internals are what only the model itself calls, by its own name.
func internals() map[string]command {
	return map[string]command{
		"launchd":     runLaunchd,
		"ssh-session": runSSHSession,
		"tart":        runTart,
	}
}

func commands() map[string]command {
	byName := map[string]command{}
	for at, do := range table() {
		byName[path.Base(at)] = do
	}
	return byName
}

var commandPaths iter.Seq[string] = func(yield func(string) bool) {
	for at := range table() {
		if !yield(at) {
			return
		}
	}
}

// IsCommand reports whether an executable that lies there is one of a model Mac's commands, so that a program of several uses knows to call Main.
func IsCommand(executable string) bool {
	name := path.Base(executable)
	_, known := commands()[name]
	if !known && name != internalName && name != "tart" {
		return false
	}
	_, err := FindRoot(executable)
	return err == nil
}
