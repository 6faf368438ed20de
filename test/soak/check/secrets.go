package check

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// window is how much of a secret is looked for: enough that it is nothing else, and short enough that a part of a secret is
// found, too.
const window = 24

// secrets looks for pieces of every secret in every text. Of one secret several pieces are looked for; a piece that
// several secrets share is no secret (the form of a JIT configuration, the head of a token).
func (x *examiner) secrets() error {
	pieces := map[string]string{} // piece → kind; empty: shared
	owner := map[string]string{}
	for _, secret := range x.Secrets {
		for line := range strings.Lines(secret.Text) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "-----") { // PEM's own lines
				continue
			}
			for _, piece := range piecesOf(line) {
				if of, known := owner[piece]; known && of != secret.Text {
					pieces[piece] = ""
					continue
				}
				owner[piece], pieces[piece] = secret.Text, secret.Kind
			}
		}
	}
	found := map[string]bool{}
	for _, path := range x.Texts {
		err := scan(path, func(piece string) {
			kind := pieces[piece]
			if key := path + kind + owner[piece]; kind != "" && !found[key] {
				found[key] = true
				x.find(RowSecrets, nil, "%s holds a %s", path, kind)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// piecesOf are windows of a line, at several places.
func piecesOf(line string) []string {
	if len(line) < window {
		return nil
	}
	var pieces []string
	const places = 8
	for i := range places {
		at := (len(line) - window) * i / (places - 1)
		pieces = append(pieces, line[at:at+window])
	}
	return pieces
}

// scan calls see with every window of a file that could be a part of a secret.
func scan(path string, see func(piece string)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for secrets: %w", err)
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 1<<20)
	run := make([]byte, 0, 2*window)
	for {
		b, err := reader.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("looking for secrets in %s: %w", path, err)
		}
		if !inSecrets(b) {
			run = run[:0]
			continue
		}
		if len(run) == cap(run) { // keep the last window
			copy(run, run[len(run)-window:])
			run = run[:window]
		}
		run = append(run, b)
		if len(run) >= window {
			see(string(run[len(run)-window:]))
		}
	}
}

// inSecrets reports whether a byte occurs in tokens, keys and base64.
func inSecrets(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '+' || b == '/' || b == '=' || b == '_' || b == '-' || b == '.'
}
