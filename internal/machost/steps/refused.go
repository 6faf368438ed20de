package steps

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// refusedFile tells a password that macOS has refused from another, by a slow salted digest: it is not the password, and only root reads it.
const refusedFile = stateDir + "/auto-login.refused"

type refusal struct {
	User   string `json:"user"`
	Salt   []byte `json:"salt"`
	Digest []byte `json:"digest"`
}

func (r refusal) digestOf(password machost.Secret) ([]byte, error) {
	const rounds, size = 600_000, 32
	return pbkdf2.Key(sha256.New, password.Reveal(), r.Salt, rounds, size)
}

// recordRefused remembers the last one.
func recordRefused(h machost.Host, user string, password machost.Secret) error {
	r := refusal{User: user, Salt: make([]byte, 16)}
	_, err := rand.Read(r.Salt)
	if err == nil {
		r.Digest, err = r.digestOf(password)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(r)
	}
	if err != nil {
		return fmt.Errorf("remembering that the password was refused: %w", err)
	}
	return writeText(h, refusedFile, string(text)+"\n", passwordMode)
}

func wasRefused(h machost.Host, user string, password machost.Secret) (bool, error) {
	text, err := h.ReadFile(refusedFile)
	if isMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var r refusal
	if broken := json.Unmarshal(text, &r); broken != nil || r.User != user {
		return false, nil //nolint:nilerr // the refused password is unknown: this one is tried once more
	}
	digest, err := r.digestOf(password)
	return subtle.ConstantTimeCompare(digest, r.Digest) == 1, err
}
