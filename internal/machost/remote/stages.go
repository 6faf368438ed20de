package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// marker begins the lines that are ours: login scripts may print others.
const marker = "bullpen:"

// answers returns what follows the marker in each line.
func answers(stdout string) []string {
	var found []string
	for line := range strings.Lines(stdout) {
		if text, ours := strings.CutPrefix(strings.TrimRight(line, "\r\n"), marker); ours {
			found = append(found, text)
		}
	}
	return found
}

// probe asks what the host is, and where the user's home is.
func (b *bootstrap) probe(ctx context.Context, c *conn) error {
	if b.home != "" {
		return nil
	}
	b.tell(StageProbe, machost.PhaseApplying, "")
	script := `echo ` + marker + `"$(` + quote(b.opt.RemoteRoot+"/usr/bin/uname") + ` -sm)"; echo ` + marker + `"$HOME"`
	out, err := c.run(ctx, command{script: script, limit: b.timing.Command})
	if err != nil {
		return err
	}
	found := answers(out.stdout)
	if len(found) != 2 || !strings.HasPrefix(found[1], "/") {
		return &StageError{Stage: StageProbe, Err: fmt.Errorf("cannot detect the host's system (exit code %d)", out.code), Detail: b.show.text(out.stderr)}
	}
	if found[0] != "Darwin arm64" {
		return &UnsupportedError{Address: b.dialer.address, Found: b.show.text(found[0])}
	}
	b.home = found[1]
	b.tell(StageProbe, machost.PhaseApplied, found[0])
	return nil
}

// remoteProgram is where the program lies on the host.
func (b *bootstrap) remoteProgram() string {
	return b.home + "/.bullpen/bullpen-" + b.program.digest
}

// digestOf prints the digest of the file $f, by what the host has: macOS has shasum.
const digestOf = `digest() { { shasum -a 256 "$f" || sha256sum "$f"; } 2>/dev/null | cut -c 1-64; }; `

// Exit codes of the scripts, as in sysexits.h.
const (
	exitDifferent  = 65
	exitCantCreate = 73
	exitIO         = 74
)

// upload puts the program on the host, unless it is there: a file named by its digest, whose content is verified.
func (b *bootstrap) upload(ctx context.Context, c *conn) error {
	if b.uploaded {
		return nil
	}
	b.tell(StageUpload, machost.PhaseApplying, "")
	script := `f=` + quote(b.remoteProgram()) + `; ` + digestOf + `test -x "$f" && echo ` + marker + `"$(digest)"`
	out, err := c.run(ctx, command{script: script, limit: b.timing.Command})
	if err != nil {
		return err
	}
	if found := answers(out.stdout); len(found) == 1 && found[0] == b.program.digest {
		b.uploaded = true
		b.tell(StageUpload, machost.PhaseUnchanged, "it is there")
		return nil
	}
	if err := b.send(ctx, c); err != nil {
		return err
	}
	b.uploaded = true
	b.tell(StageUpload, machost.PhaseApplied, megabytes(b.program.size))
	return nil
}

// send writes to a temporary name, compares the digest, and renames: no process ever finds half a program. The script itself removes the
// remains of a broken connection, when its standard input ends.
func (b *bootstrap) send(ctx context.Context, c *conn) error {
	f, err := os.Open(b.program.path)
	if err != nil {
		return fmt.Errorf("opening the program to upload: %w", err)
	}
	defer f.Close()
	script := `umask 077; d=` + quote(b.home+"/.bullpen") + `; f="$d/.part-` + randomName() + `"; ` + digestOf +
		`trap 'rm -f "$f"' EXIT; trap 'exit 74' HUP INT TERM; mkdir -p "$d" && : > "$f" || exit 73; ` +
		`cat > "$f" || exit 74; test "$(digest)" = ` + b.program.digest + ` || exit 65; chmod 0755 "$f" && mv -f "$f" ` + quote(b.remoteProgram()) + ` || exit 74; ` +
		`find "$d" -type f -mtime +7 ! -name ` + quote("bullpen-"+b.program.digest) + ` -exec rm -f {} + || true` // former versions
	var local atomic.Pointer[error]
	out, err := c.run(ctx, command{script: script, limit: b.timing.Upload, stdin: func(_ context.Context, w io.Writer) error {
		progress := &progressWriter{to: w, total: b.program.size, tell: func(text string) { b.tell(StageUpload, machost.PhaseApplying, text) }}
		_, err := io.Copy(progress, readOnly{f, &local})
		return err
	}})
	if failed := local.Load(); failed != nil {
		return fmt.Errorf("reading the program to upload: %w", *failed)
	}
	if err != nil || out.code == 0 {
		return err
	}
	reason := map[int]string{
		exitDifferent:  "the checksum of the uploaded file differs (disk full on the host?)",
		exitCantCreate: "the host cannot create ~/.bullpen: disk full, or home directory owned by another user",
		exitIO:         "the host could not write the file (disk full?)",
	}[out.code]
	if reason == "" {
		reason = fmt.Sprintf("the host's shell exited with code %d", out.code)
	}
	return &StageError{Stage: StageUpload, Err: errors.New(reason), Detail: b.show.text(out.stderr)}
}

// readOnly remembers that it was our own file that failed, and hides other ways to copy it.
type readOnly struct {
	f      *os.File
	failed *atomic.Pointer[error]
}

func (r readOnly) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed.Store(&err)
	}
	return n, err
}

// progressWriter reports each tenth.
type progressWriter struct {
	to                 io.Writer
	sent, total, tenth int64
	tell               func(string)
}

func (w *progressWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.sent += int64(n)
	if tenth := w.sent * 10 / max(w.total, 1); tenth > w.tenth && tenth < 10 {
		w.tenth = tenth
		w.tell(fmt.Sprintf("%s of %s", megabytes(w.sent), megabytes(w.total)))
	}
	return n, err
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func (b *bootstrap) sudoProgram() string { return quote(b.opt.RemoteRoot + "/usr/bin/sudo") }

func (b *bootstrap) rootFlag() string {
	if b.opt.RemoteRoot == "" {
		return ""
	}
	return " --root " + quote(b.opt.RemoteRoot)
}

// obtainSudo makes sure that sudo asks for no password. There is at most one attempt with the password, whatever its result: macOS locks
// accounts after several, and an attempt whose answer was lost counts there, too.
func (b *bootstrap) obtainSudo(ctx context.Context, c *conn) error {
	if b.sudo {
		return nil
	}
	b.tell(StageSudo, machost.PhaseApplying, "")
	granted, detail, err := b.trySudo(ctx, c)
	if err != nil {
		return err
	}
	if granted {
		b.sudo, b.unanswered = true, false
		b.tell(StageSudo, machost.PhaseUnchanged, "")
		return nil
	}
	user, password := b.opt.Target.User, b.opt.Payload.Secrets.Password
	switch {
	case b.attempted:
		return &SudoError{User: user, Unknown: true, Detail: b.show.text(detail)}
	case b.opt.Plan:
		return &SudoError{User: user, Missing: true, Detail: "a plan changes nothing, so it grants nothing"}
	case password.Empty():
		return &SudoError{User: user, Missing: true}
	case user != b.opt.Payload.Config.User:
		return &SudoError{User: user, Missing: true, Detail: "the password is that of " + b.opt.Payload.Config.User}
	}
	if err := b.grant(ctx, c); err != nil {
		return err
	}
	if granted, detail, err = b.trySudo(ctx, c); err != nil {
		return err
	}
	if !granted {
		return &StageError{Stage: StageSudo, Err: errors.New("the password is correct, but sudo still asks for one: check for a later file in /etc/sudoers.d"), Detail: b.show.text(detail)}
	}
	b.sudo = true
	b.tell(StageSudo, machost.PhaseApplied, user+" may use sudo without a password")
	return nil
}

func (b *bootstrap) trySudo(ctx context.Context, c *conn) (granted bool, detail string, err error) {
	out, err := c.run(ctx, command{script: "exec " + b.sudoProgram() + " -n /usr/bin/true", limit: b.timing.Command})
	if err == nil && out.code > 1 {
		err = &StageError{Stage: StageSudo, Err: fmt.Errorf("trying sudo on the host exited with code %d", out.code), Detail: b.show.text(out.stderr)}
	}
	return err == nil && out.code == 0, out.stderr, err
}

// grant is the only place from which a password is sent: on standard input, once.
func (b *bootstrap) grant(ctx context.Context, c *conn) error {
	b.attempted, b.unanswered = true, true
	const accepted = "sudo"
	// The inner shell says that sudo has taken the password, whatever becomes of the program.
	script := `exec ` + b.sudoProgram() + ` -S -p '' /bin/sh -c 'echo ` + marker + accepted + `; exec "$@"' sh ` +
		quote(b.remoteProgram()) + ` host grant-sudo --user ` + quote(b.opt.Target.User) + b.rootFlag()
	out, err := c.run(ctx, command{script: script, limit: b.timing.Command, stdin: func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, b.opt.Payload.Secrets.Password.Reveal()+"\n")
		return err
	}})
	if err != nil {
		return err
	}
	b.unanswered = false
	if out.code == 0 {
		return nil
	}
	detail := b.show.text(out.stderr)
	if found := answers(out.stdout); len(found) > 0 && found[0] == accepted {
		return &StageError{Stage: StageSudo, Err: fmt.Errorf("the password is correct, but granting sudo failed (exit code %d)", out.code), Detail: detail}
	}
	return &SudoError{User: b.opt.Target.User, Detail: detail}
}
