package steps

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// nodeAgent runs `bullpen node` as a launchd job of the console's user. Its restart ends no virtual machine (NODE-3), so nothing here is
// disruptive but a changed identity: an agent of another user, node or state directory does not know the machines that run. For it the job is
// unloaded, and what runs is counted, before any file is written: so launchd never runs an agent of another identity than that of the job's file.
// Machines start only in the session of the console's user, so a changed user also waits for the step auto-login, which unloads the job as well.
//
// launchd does not report which plist it has loaded, nor which program the running process was started from: a record does. It is voided
// before the first change and written after the new process has stayed (HOST-5): an apply that was killed, or failed, is seen by the next.
type nodeAgent struct {
	config    machost.Config
	bootstrap machost.Secret
	job       job
}

func newNodeAgent(p machost.Payload, f Facts) (machost.Step, error) { return agentOf(p, f), nil }

func agentOf(p machost.Payload, f Facts) nodeAgent {
	return nodeAgent{config: p.Config, bootstrap: p.Secrets.BootstrapKubeconfig, job: job{NodeLabel, NodePlist, f.Clock}}
}

const (
	bootstrapFile = stateDir + "/bootstrap.kubeconfig"
	clientCAFile  = stateDir + "/client-ca.crt"
	agentRecord   = stateDir + "/node-agent.json"
)

// agentState is the record. Digests, hexadecimal.
type agentState struct {
	// Loaded is the job's file as launchd has read it. Empty: unknown.
	Loaded string `json:"loaded"`
	// Running is all that the process was started from. Empty: it has not been seen to stay.
	Running string `json:"running"`
}

// files are what the job is made of.
type files struct {
	plist     []byte
	user      account
	identity  agentIdentity
	running   string
	bootstrap bool // the kubeconfig has to be written
	changes   []string
}

// Name is "node-agent".
func (nodeAgent) Name() string { return "node-agent" }

// Check compares the files, and asks whether the process that they ask for runs.
func (s nodeAgent) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	loaded, pid, err := s.job.state(ctx, h)
	if err != nil {
		return machost.Diff{}, err
	}
	if !s.config.WantsNode() {
		return s.checkAbsent(h, loaded)
	}
	want, err := s.files(ctx, h)
	if err != nil {
		return machost.Diff{}, err
	}
	state, err := readAgentState(h)
	if err != nil {
		return machost.Diff{}, err
	}
	changes := want.changes
	switch {
	case !loaded:
		changes = append(changes, "load "+NodeLabel)
	case state.Loaded != digest(want.plist):
		changes = append(changes, "reload "+NodeLabel)
	case pid == 0:
		changes = append(changes, "start "+NodeLabel+": it does not run")
	case state.Running != want.running:
		changes = append(changes, "restart "+NodeLabel+": it was started from something else")
	}
	diff := machost.Diff{Changes: changes}
	if diff.Empty() {
		return diff, nil
	}
	former, found, err := formerIdentity(h)
	if found && former != want.identity {
		// Without an agent no machine can start. If one runs, Apply loads the job of before: an apply may have been killed that had unloaded it.
		diff.Changes, diff.Disruptive = append(diff.Changes, former.change(want.identity)), loaded
	}
	return diff, err
}

func (s nodeAgent) checkAbsent(h machost.Host, loaded bool) (machost.Diff, error) {
	var diff machost.Diff
	if loaded {
		diff.Changes = append(diff.Changes, "unload "+NodeLabel)
	}
	for _, file := range []string{NodePlist, bootstrapFile, clientCAFile, agentRecord} {
		if _, err := h.Stat(file); err == nil {
			diff.Changes = append(diff.Changes, "remove "+file)
		} else if !isMissing(err) {
			return diff, err
		}
	}
	return diff, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// files says what is wanted, and what of it differs.
func (s nodeAgent) files(ctx context.Context, h machost.Host) (files, error) {
	user, err := findAccount(ctx, h, s.config.User)
	if err != nil {
		return files{}, err
	}
	tart, err := findTart(h, s.config.Tart)
	if err != nil {
		return files{}, err
	}
	program, err := fileDigest(h, BinaryPath)
	if isMissing(err) { // in a plan for a host that has nothing yet
		program, err = "", nil
	}
	if err != nil {
		return files{}, err
	}
	want := files{user: user, plist: nodePlist(s.config, user, tart), identity: identityOf(s.config, user)}
	want.running = digest([]byte(digest(want.plist) + program + s.config.Node.ClientCA))
	note := func(change string, err error) error {
		if change != "" {
			want.changes = append(want.changes, change)
		}
		return err
	}
	if s.config.Node.ClientCA != "" {
		if err := note(fileDiff(h, clientCAFile, []byte(s.config.Node.ClientCA), rootFile)); err != nil {
			return want, err
		}
	}
	change, err := s.bootstrapDiff(h, user)
	want.bootstrap = change != ""
	if err := note(change, err); err != nil {
		return want, err
	}
	return want, note(fileDiff(h, NodePlist, want.plist, rootFile))
}

// bootstrapDiff returns the change if the bootstrap kubeconfig must be written. A node with a certificate of its own keeps the file that it has:
// its token may have expired long ago, and is not needed.
func (s nodeAgent) bootstrapDiff(h machost.Host, user account) (string, error) {
	_, err := h.Stat(bootstrapFile)
	if err != nil && !isMissing(err) {
		return "", err
	}
	missing, identity := isMissing(err), s.hasIdentity(h)
	if s.bootstrap.Empty() {
		if missing {
			return "", &machost.StepError{File: bootstrapFile, Err: errors.New("the node agent has no certificate yet, and no bootstrap kubeconfig to request one"),
				Remedy: "Give a bootstrap kubeconfig (--bootstrap-kubeconfig; docs/guides/credentials.md)."}
		}
		return guardedDiff(h, user)
	}
	if identity && !missing {
		return guardedDiff(h, user)
	}
	return fileDiff(h, bootstrapFile, []byte(s.bootstrap.Reveal()), secretFile(user))
}

// guardedDiff returns the change if other users could read a bootstrap kubeconfig that stays (HOST-6).
func guardedDiff(h machost.Host, user account) (string, error) {
	kept, err := h.ReadFile(bootstrapFile)
	if err != nil {
		return "", err
	}
	return fileDiff(h, bootstrapFile, kept, secretFile(user))
}

func secretFile(user account) machost.Attributes {
	return machost.Attributes{Mode: 0o600, UID: user.UID, GID: user.GID}
}

// hasIdentity reports whether the node has a valid certificate of its own name. The directory is the user's: anything unexpected in it counts as no
// certificate, and the kubeconfig is written, which is harmless.
func (s nodeAgent) hasIdentity(h machost.Host) bool {
	// client-go keeps dated files, and a link to the one in use, which Local would not follow: the link is the user's.
	current := path.Join(s.config.Node.StateDir, "identity", "bullpen-node-current.pem")
	info, err := h.Stat(current)
	if err != nil {
		return false
	}
	if info.Target != "" {
		current = path.Join(path.Dir(current), path.Base(info.Target))
	}
	file, err := h.Open(current)
	if err != nil {
		return false
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 1<<20))
	if err != nil {
		return false
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return false
		}
		if block.Type == "CERTIFICATE" {
			certificate, err := x509.ParseCertificate(block.Bytes)
			// That of another node is refused by the node agent, which requests one then.
			return err == nil && certificate.Subject.CommonName == "system:node:"+s.config.Node.Name && s.job.clock.Now().Before(certificate.NotAfter)
		}
	}
}

// Apply writes what differs, and reloads the job in the least way that does.
func (s nodeAgent) Apply(ctx context.Context, h machost.Host) error {
	if !s.config.WantsNode() {
		return s.remove(ctx, h)
	}
	want, err := s.files(ctx, h)
	if err != nil {
		return err
	}
	former, found, err := formerIdentity(h)
	if err != nil {
		return err
	}
	newUser := found && former.User != want.identity.User
	if newUser {
		if err := s.requireLogin(ctx, h); err != nil {
			return err
		}
	}
	state, err := voidAgentState(h, want)
	if err != nil {
		return err
	}
	if found && former != want.identity {
		if err := s.release(ctx, h, former); err != nil {
			return err
		}
	}
	if err := s.write(h, want); err != nil {
		return err
	}
	if newUser {
		if err := (logRotation{s.config}).Apply(ctx, h); err != nil {
			return err
		}
	}
	before, err := s.reload(ctx, h, state)
	if err != nil {
		return err
	}
	state.Loaded = digest(want.plist)
	if err := s.settle(ctx, h, before); err != nil {
		return err
	}
	state.Running = want.running
	return writeAgentState(h, state)
}

// reload starts a process from the files, and returns the one that ran before.
func (s nodeAgent) reload(ctx context.Context, h machost.Host, state agentState) (before int, err error) {
	loaded, before, err := s.job.state(ctx, h)
	if err != nil {
		return 0, err
	}
	if loaded && state.Loaded != "" {
		// HOST-5: launchd disables a job that is registered repeatedly without a change.
		err = s.job.restart(ctx, h)
	} else {
		err = s.loadAgain(ctx, h)
	}
	if err != nil {
		return 0, &machost.StepError{File: NodePlist, Err: err, Remedy: "Check `launchctl print " + s.job.target() + "` and the system's log."}
	}
	return before, nil
}

func (s nodeAgent) write(h machost.Host, want files) error {
	if s.config.Node.ClientCA != "" {
		if err := writeBytes(h, clientCAFile, []byte(s.config.Node.ClientCA), rootFile); err != nil {
			return err
		}
	}
	restore := func() error { return nil }
	if want.bootstrap {
		var err error
		if restore, err = s.writeBootstrap(h, want.user); err != nil {
			return err
		}
	}
	change, err := fileDiff(h, NodePlist, want.plist, rootFile)
	if err == nil && change != "" {
		err = writeBytes(h, NodePlist, want.plist, rootFile)
	}
	if err != nil {
		return errors.Join(err, restore())
	}
	return nil
}

// writeBootstrap returns how to give the kubeconfig back to another user, who must read it as long as the job's file is that user's.
func (s nodeAgent) writeBootstrap(h machost.Host, user account) (restore func() error, err error) {
	restore = func() error { return nil }
	former, err := h.ReadFile(bootstrapFile)
	if err != nil && (!isMissing(err) || s.bootstrap.Empty()) {
		return restore, err
	}
	if err == nil {
		info, err := h.Stat(bootstrapFile)
		if err != nil {
			return restore, err
		}
		if info.UID != user.UID {
			restore = func() error {
				return writeBytes(h, bootstrapFile, former, machost.Attributes{Mode: 0o600, UID: info.UID, GID: info.GID})
			}
		}
	}
	text := []byte(s.bootstrap.Reveal())
	if s.bootstrap.Empty() { // only its mode or owner is wrong
		text = former
	}
	return restore, writeBytes(h, bootstrapFile, text, secretFile(user))
}

// settle waits for a new process that stays; the first may have died of the replaced files, so there is a second try.
func (s nodeAgent) settle(ctx context.Context, h machost.Host, before int) error {
	for try := 1; ; try++ {
		stays, err := s.job.settle(ctx, h, before)
		if err != nil || stays {
			return err
		}
		if try == 2 {
			return &machost.StepError{File: NodeLog, Err: fmt.Errorf("the node agent does not stay up for %s after its reload%s", settleFor, lastWords(h)),
				Remedy: "Read its log, fix the cause, and apply again: the change is not recorded, so the next apply reloads it."}
		}
		_, before, err = s.job.state(ctx, h)
		if err != nil {
			return err
		}
		if err := s.job.restart(ctx, h); err != nil {
			return err
		}
	}
}

// lastWords is the last line of the agent's log.
func lastWords(h machost.Host) string {
	info, err := h.Stat(NodeLog)
	if err != nil {
		return ""
	}
	log, err := h.Open(NodeLog)
	if err != nil {
		return ""
	}
	defer log.Close()
	tail := make([]byte, 2048)
	n, _ := log.ReadAt(tail, max(0, info.Size-int64(len(tail)))) // io.EOF, and what there is
	text := strings.TrimSpace(string(bytes.ToValidUTF8(tail[:n], []byte("?"))))
	if text == "" {
		return ""
	}
	return "; last log lines: " + text[strings.LastIndexByte(text, '\n')+1:]
}

// remove removes the agent. Runners in virtual machines continue: `bullpen node cleanup` ends them.
func (s nodeAgent) remove(ctx context.Context, h machost.Host) error {
	if err := s.job.unload(ctx, h); err != nil {
		return err
	}
	for _, file := range []string{NodePlist, bootstrapFile, clientCAFile, agentRecord} {
		if err := h.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// Verify requires a running process.
func (s nodeAgent) Verify(ctx context.Context, h machost.Host) error {
	if !s.config.WantsNode() {
		return nil
	}
	_, pid, err := s.job.state(ctx, h)
	if err == nil && pid == 0 {
		err = &machost.StepError{File: NodeLog, Err: fmt.Errorf("the node agent does not run%s", lastWords(h)), Remedy: "Read its log, fix the cause, and apply again."}
	}
	return err
}

func readAgentState(h machost.Host) (agentState, error) {
	var state agentState
	text, err := h.ReadFile(agentRecord)
	if isMissing(err) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return agentState{}, nil //nolint:nilerr // damaged: as if nothing were known
	}
	return state, nil
}

// voidAgentState is before the first change. Only a job that launchd has read from the wanted file stays known.
func voidAgentState(h machost.Host, want files) (agentState, error) {
	state, err := readAgentState(h)
	if err != nil {
		return state, err
	}
	state.Running = ""
	if state.Loaded != digest(want.plist) {
		state.Loaded = ""
	}
	return state, writeAgentState(h, state)
}

func writeAgentState(h machost.Host, state agentState) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", agentRecord, err)
	}
	return writeBytes(h, agentRecord, append(text, '\n'), rootFile)
}
