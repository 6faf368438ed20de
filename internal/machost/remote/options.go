package remote

import (
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// Target is a host, and how it is verified.
type Target struct {
	// Address is host or host:port.
	Address string
	User    string
	// Key and Signers (which an ssh-agent has) are how the user is proved, in this order. There is no other way: no password is
	// ever given to an SSH server.
	Key     ssh.Signer
	Signers func() ([]ssh.Signer, error)
	// HostKey is the fingerprint, "SHA256:…", of the only key that is accepted. Empty: the one in KnownHosts, or else the first one
	// seen, which is reported and held to until the end of the bootstrap.
	HostKey string
	// KnownHosts is a file in the format of OpenSSH, which may not exist yet. Its entry for a host must match; a host that it does not list
	// is left to Trust.
	KnownHosts string
	// Trust is asked once about the key of a host that KnownHosts does not know. Its error ends the bootstrap. Nil, with KnownHosts: the
	// host is refused with a *HostKeyError.
	Trust func(address string, key ssh.PublicKey) error
}

// Options of Bootstrap. Target, Payload and Binary are required.
type Options struct {
	Target  Target
	Payload machost.Payload
	// Binary is the file to upload: this program for darwin/arm64.
	Binary string
	// Plan only says what an apply would change.
	Plan bool
	// Hold leaves disruptive changes for another apply, also while no virtual machine runs: see machost.Options.
	Hold bool
	// RemoteRoot is put before every path on the host, for a host that is a model. Empty on a Mac.
	RemoteRoot string
	// Events receives each event, in order, from one goroutine at a time: the stages of the bootstrap itself (see Stage), and the reports
	// of the apply. Nil: events are dropped.
	Events func(machost.Event)
	Timing Timing
}

// Stage names one part of the bootstrap in the field Step of its events and in its errors. No step of machost has one of these names.
type Stage = string

// The stages, in their order. Connect comes again after a dropped connection, and is followed by those that had not ended.
const (
	StageConnect Stage = "ssh-connect" // wait for SSH, the host's key, the user's
	StageProbe   Stage = "ssh-probe"   // is it a Mac that can be a host
	StageUpload  Stage = "ssh-upload"  // of this program
	StageSudo    Stage = "ssh-sudo"    // sudo without a password, granted by the first and only one with it
	StageApply   Stage = "ssh-apply"   // `bullpen host apply`, whose own steps follow
)

// Stages returns them in their order.
func Stages() []Stage { return []Stage{StageConnect, StageProbe, StageUpload, StageSudo, StageApply} }

// Timing says how long everything may take. The zero value is for a host across the internet.
type Timing struct {
	// Wait is for how long a host that does not answer is tried: it may be starting. Default 5 min.
	Wait time.Duration
	// Dial is for one connection, with its whole handshake. Default 20 s.
	Dial time.Duration
	// KeepAlive is the time from one sign of life to the next; a peer that has missed three is dead. Default 10 s.
	KeepAlive time.Duration
	// Command is for each short command, the first sudo included. Default 1 min.
	Command time.Duration
	// Upload is for the upload of the program. Default 15 min.
	Upload time.Duration
	// Apply is for one run of the apply, the download of Tart included. Default 45 min.
	Apply time.Duration
	// Silence is for how long the apply may say nothing, though its host is alive. Default 20 min.
	Silence time.Duration
	// Confirm is for the proof that the host can still be reached (HOST-7). Default 40 s: the host takes back after 50 what was not confirmed.
	Confirm time.Duration
	// Whole is for the whole bootstrap, with all connections that are taken up again. Default 2 h.
	Whole time.Duration
	// Resumes is how often a dropped connection is taken up again, in the whole bootstrap. Default 8.
	Resumes int
	// Backoff is waited before the first of them, and doubled up to a minute. Default 1 s.
	Backoff time.Duration

	// Now and After are the clock. Default: the machine's.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		value *time.Duration
		is    time.Duration
	}{
		{&t.Wait, 5 * time.Minute}, {&t.Dial, 20 * time.Second}, {&t.KeepAlive, 10 * time.Second}, {&t.Command, time.Minute},
		{&t.Upload, 15 * time.Minute}, {&t.Apply, 45 * time.Minute}, {&t.Silence, 20 * time.Minute}, {&t.Confirm, 40 * time.Second}, {&t.Backoff, time.Second},
		{&t.Whole, 2 * time.Hour},
	} {
		if *d.value <= 0 {
			*d.value = d.is
		}
	}
	if t.Resumes == 0 {
		t.Resumes = 8
	}
	if t.Now == nil {
		t.Now = time.Now
	}
	if t.After == nil {
		t.After = time.After
	}
	return t
}

// Result is what came of a bootstrap.
type Result struct {
	// HostKey is the fingerprint of the host's key, "SHA256:…", also when the bootstrap failed after it was known.
	HostKey string
	// Report of the apply. After a dropped connection a step that was changed counts as changed.
	Report machost.Report
	// Hash is the drift hash that is now applied; empty unless everything is.
	Hash string
}
