package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// logRotation has newsyslog, which launchd starts every half hour, rotate the node agent's log. The agent notices that its file was
// renamed, and opens the new one: no signal is sent. The directory is root's, so that no user can have newsyslog follow a link.
type logRotation struct{ config machost.Config }

func newLogRotation(p machost.Payload, _ Facts) (machost.Step, error) {
	return logRotation{p.Config}, nil
}

const (
	newsyslog     = "/usr/sbin/newsyslog"
	newsyslogFile = "/etc/newsyslog.d/bullpen.conf"
)

// Name is "log-rotation".
func (logRotation) Name() string { return "log-rotation" }

// content is newsyslog's line: file, owner, mode, number of archives, KiB, when (whenever it is too large), and flags: compressed (Z), no
// signal (N).
func (s logRotation) content(user account) []byte {
	return fmt.Appendf(nil, "# Written by bullpen. Changes will be overwritten.\n%s\t%d:%d\t644\t%d\t%d\t*\tZN\n",
		NodeLog, user.UID, user.GID, s.config.Logs.Keep, s.config.Logs.MaxMB<<10)
}

// Check compares the file, and checks that the log exists, which the agent cannot create in a directory of root's.
func (s logRotation) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	if !s.config.WantsNode() {
		if _, err := h.Stat(newsyslogFile); err == nil {
			diff.Changes = append(diff.Changes, "remove "+newsyslogFile)
		} else if !isMissing(err) {
			return diff, err
		}
		return diff, nil
	}
	user, err := s.account(ctx, h)
	if err != nil {
		return diff, err
	}
	change, err := fileDiff(h, newsyslogFile, s.content(user), rootFile)
	if err != nil {
		return diff, err
	}
	if change != "" {
		diff.Changes = append(diff.Changes, change)
	}
	info, err := h.Stat(NodeLog)
	switch {
	case isMissing(err):
		diff.Changes = append(diff.Changes, "make "+NodeLog)
	case err != nil:
		return diff, err
	case info.IsDir || info.Target != "" || info.Attributes != logFile(user):
		diff.Changes = append(diff.Changes, fmt.Sprintf("make %s a file of mode 0644 of %s", NodeLog, user.Name))
	}
	return diff, nil
}

// account is the user who writes the log. As long as the job's file names another one than the configuration, it is that one, whose agent could not
// open the log again otherwise: the step node-agent changes the file and then the log.
func (s logRotation) account(ctx context.Context, h machost.Host) (account, error) {
	former, found, err := formerIdentity(h)
	if err != nil {
		return account{}, err
	}
	if found && former.User != "" && former.User != s.config.User {
		if user, err := findAccount(ctx, h, former.User); err == nil {
			return user, nil
		}
	}
	return findAccount(ctx, h, s.config.User)
}

func logFile(user account) machost.Attributes {
	return machost.Attributes{Mode: 0o644, UID: user.UID, GID: user.GID}
}

// Apply writes the file, and makes the log.
func (s logRotation) Apply(ctx context.Context, h machost.Host) error {
	if !s.config.WantsNode() {
		return h.Remove(newsyslogFile)
	}
	user, err := s.account(ctx, h)
	if err != nil {
		return err
	}
	if err := h.MakeDir(logDir, machost.Attributes{Mode: 0o755}); err != nil {
		return err
	}
	info, err := h.Stat(NodeLog)
	switch {
	case isMissing(err):
		err = h.WriteFile(NodeLog, strings.NewReader(""), logFile(user))
	case err == nil && !info.IsDir && info.Target == "" && info.Attributes != logFile(user):
		err = s.takeOver(h, user)
	case err == nil && info.Attributes != logFile(user):
		return &machost.StepError{File: NodeLog, Err: fmt.Errorf("not a regular file"), Remedy: "Move it, and apply again."}
	}
	if err != nil {
		return err
	}
	return writeBytes(h, newsyslogFile, s.content(user), rootFile)
}

// takeOver gives the log to its user, with what is in it.
func (logRotation) takeOver(h machost.Host, user account) error {
	log, err := h.Open(NodeLog)
	if err != nil {
		return err
	}
	defer log.Close()
	return h.WriteFile(NodeLog, log, logFile(user))
}

// Verify has newsyslog read the file, and do nothing.
func (s logRotation) Verify(ctx context.Context, h machost.Host) error {
	if !s.config.WantsNode() {
		return nil
	}
	if _, err := run(ctx, h, newsyslog, "-n", "-f", newsyslogFile); err != nil {
		return &machost.StepError{File: newsyslogFile, Err: err}
	}
	return nil
}
