package remote

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// keyTypes are the types of host keys, the ones that OpenSSH prefers first, each with the algorithms that prove it. Host
// certificates are none of them: a fleet's Macs have keys.
func keyTypes() [][]string {
	types := [][]string{
		{ssh.KeyAlgoED25519}, {ssh.KeyAlgoECDSA256}, {ssh.KeyAlgoECDSA384}, {ssh.KeyAlgoECDSA521},
		{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
	}
	known := slices.Concat(types...)
	for _, algorithm := range ssh.SupportedAlgorithms().HostKeys { // those that the library learns later
		if !slices.Contains(known, algorithm) && !strings.Contains(algorithm, "-cert-v0") {
			types = append(types, []string{algorithm})
		}
	}
	return types
}

// typeOf returns the algorithms that prove a key of that type.
func typeOf(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}

// hostKeys decides which key the host may have. The first that was accepted is held: it alone is accepted from then on.
type hostKeys struct {
	address string
	pinned  string
	known   ssh.HostKeyCallback // nil: there is no file
	wanted  []ssh.PublicKey     // what known says of the host
	trust   func(address string, key ssh.PublicKey) error

	mu   sync.Mutex
	held ssh.PublicKey
	seen []string // fingerprints that were refused, each once
	// asked is the key of an unknown host; the user is asked about it without an open connection.
	asked ssh.PublicKey
}

// errAsk ends a handshake: the user must be asked about the key.
var errAsk = errors.New("the host key is not known yet")

func newHostKeys(target Target, address string) (*hostKeys, error) {
	h := &hostKeys{address: address, pinned: target.HostKey, trust: target.Trust}
	if h.pinned != "" {
		if !validFingerprint(h.pinned) {
			return nil, fmt.Errorf("the pinned host key %q is not a fingerprint: use the output of `ssh-keygen -lf`, SHA256: and 43 characters", h.pinned)
		}
		return h, nil
	}
	if target.KnownHosts == "" {
		return h, nil
	}
	known, err := knownhosts.New(target.KnownHosts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		known = func(string, net.Addr, ssh.PublicKey) error { return &knownhosts.KeyError{} }
	case err != nil:
		return nil, fmt.Errorf("reading known hosts: %w", err)
	}
	h.known = known
	h.wanted, err = knownKeys(known, address)
	return h, err
}

// validFingerprint reports whether it is "SHA256:" and the 43 characters of a SHA-256 in unpadded base64.
func validFingerprint(text string) bool {
	digest, ok := strings.CutPrefix(text, "SHA256:")
	return ok && len(digest) == 43 && strings.Trim(digest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") == ""
}

// knownKeys asks the file about a fresh key: the error names the keys that the host should have.
func knownKeys(known ssh.HostKeyCallback, address string) ([]ssh.PublicKey, error) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	fresh, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	var answer *knownhosts.KeyError
	if err := known(address, &net.TCPAddr{}, fresh); !errors.As(err, &answer) {
		return nil, fmt.Errorf("looking up %s in the known hosts: %w", address, err)
	}
	var keys []ssh.PublicKey
	for _, want := range answer.Want {
		keys = append(keys, want.Key)
	}
	return keys, nil
}

// rounds are the algorithms to offer, one connection after another until the host shows a key that is accepted. A pinned fingerprint does
// not contain its type, so each type is tried; a key that is known by its type is requested by it, so that a host cannot present another of
// its keys instead.
func (h *hostKeys) rounds() [][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held != nil:
		return [][]string{typeOf(h.held)}
	case h.pinned != "":
		return keyTypes()
	case len(h.wanted) > 0:
		var offer []string
		for _, algorithms := range keyTypes() {
			if slices.ContainsFunc(h.wanted, func(k ssh.PublicKey) bool { return slices.Equal(typeOf(k), algorithms) }) {
				offer = append(offer, algorithms...)
			}
		}
		return [][]string{offer}
	}
	return [][]string{slices.Concat(keyTypes()...)}
}

// check is called in the handshake, before anything of the user is sent.
func (h *hostKeys) check(hostname string, remote net.Addr, key ssh.PublicKey) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	print := ssh.FingerprintSHA256(key)
	switch {
	case h.held != nil:
		if !bytes.Equal(h.held.Marshal(), key.Marshal()) {
			return h.changed(print)
		}
		return nil
	case h.pinned != "":
		if print != h.pinned {
			if !slices.Contains(h.seen, print) {
				h.seen = append(h.seen, print)
			}
			return &HostKeyError{Address: h.address, Want: []string{h.pinned}, Got: slices.Clone(h.seen)}
		}
	case h.known != nil:
		if err := h.checkKnown(hostname, remote, key); err != nil {
			return err
		}
	}
	h.held = key
	return nil
}

func (h *hostKeys) checkKnown(hostname string, remote net.Addr, key ssh.PublicKey) error {
	err := h.known(hostname, remote, key)
	var wrong *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	print := []string{ssh.FingerprintSHA256(key)}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return &HostKeyError{Address: h.address, Got: print, Revoked: true}
	case errors.As(err, &wrong) && len(wrong.Want) > 0:
		return &HostKeyError{Address: h.address, Want: fingerprints(h.wanted), Got: print}
	case errors.As(err, &wrong) && h.trust != nil:
		h.asked = key
		return errAsk
	case errors.As(err, &wrong):
		return &HostKeyError{Address: h.address, Got: print}
	}
	return fmt.Errorf("looking up the host key: %w", err)
}

// ask asks about the key that ended the last handshake, and holds it if the answer is yes.
func (h *hostKeys) ask() error {
	h.mu.Lock()
	key := h.asked
	h.mu.Unlock()
	if err := h.trust(h.address, key); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = key
	return nil
}

// none is the error of a host that has no key of the types that were offered in the last round.
func (h *hostKeys) none() *HostKeyError {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held != nil:
		return h.changed()
	case h.pinned != "":
		return &HostKeyError{Address: h.address, Want: []string{h.pinned}, Got: slices.Clone(h.seen)}
	}
	return &HostKeyError{Address: h.address, Want: fingerprints(h.wanted)}
}

func (h *hostKeys) changed(got ...string) *HostKeyError {
	return &HostKeyError{Address: h.address, Want: []string{ssh.FingerprintSHA256(h.held)}, Got: got, Changed: true}
}

// fingerprint is that of the key that is held; empty while none was accepted.
func (h *hostKeys) fingerprint() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		return ""
	}
	return ssh.FingerprintSHA256(h.held)
}

func fingerprints(keys []ssh.PublicKey) []string {
	var all []string
	for _, key := range keys {
		all = append(all, ssh.FingerprintSHA256(key))
	}
	return all
}

// AddKnownHost appends a host's key to a known_hosts file, which is created if need be (0600, in a directory of 0700).
func AddKnownHost(file, address string, key ssh.PublicKey) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("making the directory of known hosts: %w", err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening known hosts: %w", err)
	}
	defer f.Close()
	line := knownhosts.Line([]string{knownhosts.Normalize(address)}, key) + "\n"
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			line = "\n" + line // an editor left the last line unterminated
		}
	}
	if _, err := f.WriteString(line); err != nil {
		return fmt.Errorf("writing known hosts: %w", err)
	}
	return nil
}
