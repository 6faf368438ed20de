package download

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Checksum is a SHA-256 digest.
type Checksum [sha256.Size]byte

// String is the digest as sha256sum prints it.
func (c Checksum) String() string { return hex.EncodeToString(c[:]) }

// ErrChecksum reports that a file is not the one that its publisher has.
var ErrChecksum = errors.New("wrong checksum")

// ParseChecksum reads a file that holds one digest: alone, as beside each program of dl.k8s.io, or before a name, as
// sha256sum writes it.
func ParseChecksum(data []byte) (Checksum, error) {
	fields := strings.Fields(string(data))
	if len(fields) != 1 && len(fields) != 2 {
		return Checksum{}, errors.New("not a checksum file: expected one digest")
	}
	return parseDigest(fields[0])
}

// FindChecksum reads the line for name in a file that sha256sum wrote, such as etcd's SHA256SUMS.
func FindChecksum(data []byte, name string) (Checksum, error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == name { // the asterisk marks a binary file
			return parseDigest(fields[0])
		}
	}
	if err := lines.Err(); err != nil {
		return Checksum{}, fmt.Errorf("not a checksum file: %w", err)
	}
	return Checksum{}, fmt.Errorf("the checksum file does not list %s", name)
}

func parseDigest(text string) (Checksum, error) {
	var sum Checksum
	if len(text) != hex.EncodedLen(len(sum)) {
		return Checksum{}, errors.New("not a checksum file: a SHA-256 digest has 64 hexadecimal digits")
	}
	if _, err := hex.Decode(sum[:], []byte(text)); err != nil {
		return Checksum{}, errors.New("not a checksum file: a SHA-256 digest has 64 hexadecimal digits")
	}
	return sum, nil
}

// verify reads the file back from the disk: a resumed file was written by more than one process.
func verify(path string, want Checksum) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("verifying the checksum: %w", err)
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return fmt.Errorf("verifying the checksum: %w", err)
	}
	if got := Checksum(digest.Sum(nil)); got != want {
		return fmt.Errorf("%w: SHA-256 is %s, but %s is published", ErrChecksum, got, want)
	}
	return nil
}
