//go:build unix

package tart

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ScriptFile is the file in TART_HOME that tells the fake what to do beyond Tart's own behaviour. It is JSON, and may be
// replaced at any time: every command reads it once, when it starts.
const ScriptFile = "faketart.json"

// Script is the content of ScriptFile. The zero value is a healthy Mac, on which everything takes no longer than it must.
type Script struct {
	// Version is what --version prints. Default: DefaultVersion.
	Version string `json:"version,omitempty"`
	// VMLimit is how many macOS VMs may run concurrently. Default: 2, which is what Apple's licence and its kernel allow
	// (Tart 4.4).
	VMLimit int `json:"vmLimit,omitempty"`
	// GhostSlots is how many of them the host counts as used although nothing runs (Tart 4.4, tart#1217).
	GhostSlots int `json:"ghostSlots,omitempty"`
	// OtherMachines is how many virtual machines of other users and programs run: they count against VMLimit, and only ps shows them.
	OtherMachines int `json:"otherMachines,omitempty"`
	// Session is what kind of session the user has: SessionAqua (the default), SessionNone or SessionBackground. Without
	// SessionAqua no VM starts.
	Session string `json:"session,omitempty"`
	// LoginwindowRestores indicates that restarting the loginwindow (launchctl kickstart) brings back the Aqua session.
	LoginwindowRestores bool `json:"loginwindowRestores,omitempty"`
	// LockedKeychain indicates that credentials of registries can be neither read nor stored.
	LockedKeychain bool `json:"lockedKeychain,omitempty"`
	// DiskGB is how large the host's disk is; 0 means that it never fills.
	DiskGB int `json:"diskGB,omitempty"`
	// Images are the registry's, by reference. A reference that is not here is an image of the default kind.
	Images map[string]Image `json:"images,omitempty"`
	// Timing is how long things take.
	Timing Timing `json:"timing"`
	// Rules change what single commands do; the first that fires decides.
	Rules []Rule `json:"rules,omitempty"`
}

// DefaultVersion is what the fake calls itself.
const DefaultVersion = "2.28.6"

// The kinds of session.
const (
	SessionAqua       = "aqua"
	SessionNone       = "none"
	SessionBackground = "background"
)

// Image is one of the registry's.
type Image struct {
	// Missing indicates that the registry does not know it; Private, that it wants credentials.
	Missing bool `json:"missing,omitempty"`
	Private bool `json:"private,omitempty"`
	// Digest is its manifest's, "sha256:" and 64 hex digits. Default: the hash of the reference.
	Digest string `json:"digest,omitempty"`
	// SizeGB is how much of the disk it takes. Default: 30.
	SizeGB int `json:"sizeGB,omitempty"`
	// DiskGB is how large the VM's disk is. Default: 50.
	DiskGB int `json:"diskGB,omitempty"`
	// OS of the guest. Default: darwin. Others do not count against VMLimit.
	OS string `json:"os,omitempty"`
	// Boot is a command that the guest runs once it is up, as a LaunchAgent of the image would.
	Boot []string `json:"boot,omitempty"`
	// NoGuestAgent indicates that the image lacks what answers `tart exec`.
	NoGuestAgent bool `json:"noGuestAgent,omitempty"`
}

// Timing is how long things take.
type Timing struct {
	// Configure is how long `run` builds its configuration, before it holds the lock by which others see it (Tart 4.2).
	Configure Duration `json:"configure,omitzero"`
	// Boot is how long after that the guest's agent answers; Address, its DHCP lease.
	Boot    Duration `json:"boot,omitzero"`
	Address Duration `json:"address,omitzero"`
	// Shutdown is how long programs in a guest may take to exit when it shuts down. Default: 2s.
	Shutdown Duration `json:"shutdown,omitzero"`
	// Pull is how long an image takes to arrive, Clone how long a copy takes.
	Pull  Duration `json:"pull,omitzero"`
	Clone Duration `json:"clone,omitzero"`
}

// Rule changes what some commands do.
type Rule struct {
	// Command is the subcommand, such as "clone"; empty means each of them.
	Command string `json:"command,omitempty"`
	// Name is a pattern (path.Match, in which * matches no /) of the VM or image that the command is about; empty means any.
	Name string `json:"name,omitempty"`
	// Skip is how many matching commands go unharmed first; Times, how many are then changed (0: all of them).
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`
	// Effect is what happens.
	Effect Effect `json:"effect"`
	// After is how long the command waits before the effect.
	After Duration `json:"after,omitzero"`
	// Message names one of Messages, for EffectAnswer and EffectFailAfterwards.
	Message string `json:"message,omitempty"`
	// Exit, Stdout and Stderr are the answer where there is no Message.
	Exit   int    `json:"exit,omitempty"`
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// Effect of a rule.
type Effect string

// The effects.
const (
	// EffectAnswer only answers.
	EffectAnswer Effect = "answer"
	// EffectFailAfterwards does what was asked, and answers as if it had failed.
	EffectFailAfterwards Effect = "fail-afterwards"
	// EffectHang never ends, and a child of the command holds its output open.
	EffectHang Effect = "hang"
	// EffectDelay only waits for After.
	EffectDelay Effect = "delay"

	// EffectCrash ends a running guest after After. `run` still exits with 0 (Tart 4.1).
	EffectCrash Effect = "crash"
	// EffectGhost leaves the VM's slot occupied when it has ended (Tart 4.4, tart#1217).
	EffectGhost Effect = "ghost"
	// EffectUnlocked runs the VM without its lock: `list` says that it is stopped (Tart 4.4, tart#967).
	EffectUnlocked Effect = "unlocked"
	// EffectDeadSocket leaves the control socket without a listener (Tart 4.3, tart#1220).
	EffectDeadSocket Effect = "dead-socket"
	// EffectIgnoreInterrupt runs a VM that SIGINT does not stop.
	EffectIgnoreInterrupt Effect = "ignore-interrupt"
	// EffectCorrupt makes `clone` and `pull` leave a VM without one of its files (Tart 4.3).
	EffectCorrupt Effect = "corrupt"
)

// Duration is written as "1.5s".
type Duration time.Duration

// MarshalText writes it as time.Duration does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Write makes the script that of the fake whose TART_HOME this is. Rules count from the start again, and a session that
// launchctl restored is what the script says again.
func Write(home string, s Script) error {
	for i, r := range s.Rules {
		if _, known := Messages[r.Message]; r.Message != "" && !known {
			return fmt.Errorf("rule %d: there is no message %q", i, r.Message)
		}
	}
	encoded, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	state := place(home)
	if err := errors.Join(os.RemoveAll(state.fired()), os.RemoveAll(state.restored()), os.MkdirAll(state.state(), 0o700)); err != nil {
		return err
	}
	// Concurrent readers see one script or the other.
	written := filepath.Join(state.state(), ScriptFile)
	if err := os.WriteFile(written, encoded, 0o600); err != nil {
		return err
	}
	return os.Rename(written, filepath.Join(home, ScriptFile))
}

// readScript is the script in force; that of a healthy Mac when there is none.
func readScript(path string) (Script, error) {
	var s Script
	encoded, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		err = json.Unmarshal(encoded, &s)
	}
	if err != nil {
		return s, fmt.Errorf("reading %s: %w", path, err)
	}
	if s.Version == "" {
		s.Version = DefaultVersion
	}
	if s.VMLimit == 0 {
		s.VMLimit = 2
	}
	if s.Session == "" {
		s.Session = SessionAqua
	}
	if s.Timing.Shutdown == 0 {
		s.Timing.Shutdown = Duration(2 * time.Second)
	}
	return s, nil
}

// image is the registry's of that reference.
func (s Script) image(ref string) Image {
	image := s.Images[ref]
	if image.SizeGB == 0 {
		image.SizeGB = 30
	}
	if image.DiskGB == 0 {
		image.DiskGB = 50
	}
	if image.OS == "" {
		image.OS = "darwin"
	}
	return image
}
