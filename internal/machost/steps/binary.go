package steps

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// binary puts the running program where launchd and pods start it from. macOS kills a program whose file was changed in place, and an arm64
// program without a signature: so it is written beside, signed there if it is not, and renamed.
type binary struct{ source string }

func newBinary(_ machost.Payload, f Facts) (machost.Step, error) {
	if f.Binary == "" {
		return nil, errors.New("the path of the running program is not known")
	}
	return binary{f.Binary}, nil
}

const (
	binaryNext = "/usr/local/bin/.bullpen.next"
	// signedRecord names the digests of a program before and after it was signed here.
	signedRecord = stateDir + "/binary.signed"
	codesign     = "/usr/bin/codesign"
)

var programFile = machost.Attributes{Mode: 0o755}

// Name is "binary".
func (binary) Name() string { return "binary" }

// Check compares digests.
func (s binary) Check(_ context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	want, err := s.digest()
	if err != nil {
		return diff, err
	}
	info, err := h.Stat(BinaryPath)
	switch {
	case isMissing(err):
		diff.Changes = append(diff.Changes, "write "+BinaryPath+": there is none")
		return diff, nil
	case err != nil:
		return diff, err
	case info.IsDir || info.Target != "" || info.Attributes != programFile:
		diff.Changes = append(diff.Changes, "write "+BinaryPath+": not a file with mode 0755, owned by root")
		return diff, nil
	}
	have, err := fileDigest(h, BinaryPath)
	if err != nil {
		return diff, err
	}
	if have == want {
		return diff, nil
	}
	record, err := h.ReadFile(signedRecord)
	if err != nil && !isMissing(err) {
		return diff, err
	}
	if string(record) != signedLine(want, have) {
		diff.Changes = append(diff.Changes, fmt.Sprintf("write %s: it is version %.12s, want %.12s", BinaryPath, have, want))
	}
	return diff, nil
}

func signedLine(source, signed string) string { return source + " " + signed + "\n" }

// Apply writes the program.
func (s binary) Apply(ctx context.Context, h machost.Host) error {
	source, err := os.Open(s.source)
	if err != nil {
		return fmt.Errorf("reading the running program: %w", err)
	}
	defer source.Close()
	sum := sha256.New()
	if err := h.WriteFile(binaryNext, io.TeeReader(source, sum), programFile); err != nil {
		return err
	}
	if err := s.sign(ctx, h, hex.EncodeToString(sum.Sum(nil))); err != nil {
		return err
	}
	return h.Rename(binaryNext, BinaryPath)
}

func (s binary) sign(ctx context.Context, h machost.Host, source string) error {
	said, err := h.Run(ctx, machost.Command{Path: codesign, Args: []string{"--verify", binaryNext}})
	if err != nil || said.ExitCode == 0 {
		return err
	}
	if _, err := run(ctx, h, codesign, "--force", "--sign", "-", binaryNext); err != nil {
		return fmt.Errorf("signing the program: %w", err)
	}
	signed, err := fileDigest(h, binaryNext)
	if err != nil {
		return err
	}
	return h.WriteFile(signedRecord, strings.NewReader(signedLine(source, signed)), rootFile)
}

// Verify starts it: macOS kills what it does not accept.
func (binary) Verify(ctx context.Context, h machost.Host) error {
	if _, err := run(ctx, h, BinaryPath, "--version"); err != nil {
		return &machost.StepError{File: BinaryPath, Err: err,
			Remedy: "Check `codesign --verify --verbose " + BinaryPath + "`, and whether security software of this Mac blocks the program."}
	}
	return nil
}

func (s binary) digest() (string, error) {
	file, err := os.Open(s.source)
	if err != nil {
		return "", fmt.Errorf("reading the running program: %w", err)
	}
	defer file.Close()
	return digestOf(file)
}

func fileDigest(h machost.Host, path string) (string, error) {
	file, err := h.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return digestOf(file)
}

func digestOf(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", fmt.Errorf("reading a file for its digest: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// writeBytes writes a small file.
func writeBytes(h machost.Host, path string, content []byte, attributes machost.Attributes) error {
	return h.WriteFile(path, bytes.NewReader(content), attributes)
}
