package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// Headers of a webhook delivery.
const (
	HeaderEvent     = "X-GitHub-Event"
	HeaderDelivery  = "X-GitHub-Delivery"
	HeaderSignature = "X-Hub-Signature-256"
)

// MaxWebhookBody is the largest payload that GitHub sends, in bytes.
const MaxWebhookBody = 25 << 20

// ErrBadSignature: the body was not signed with a secret of ours. Nothing of it may be believed, or parsed (NET-6).
var ErrBadSignature = errors.New("the webhook's signature does not match")

const signaturePrefix = "sha256="

// SecretPosition says which of the two secrets a webhook was signed with, and never the secret itself.
type SecretPosition string

// The positions. During a rotation both are in use: GitHub knows one of them, and which one changes at a moment that nobody
// but GitHub knows exactly.
const (
	SecretCurrent  SecretPosition = "current"
	SecretPrevious SecretPosition = "previous"
)

// SecretPositions are all of them.
func SecretPositions() []SecretPosition { return []SecretPosition{SecretCurrent, SecretPrevious} }

// WebhookSecrets are what webhooks may be signed with: one secret, or two while it is rotated. It is safe for concurrent
// use; a webhook is verified with the secrets of one moment.
type WebhookSecrets struct{ pair atomic.Pointer[[2]string] }

// NewWebhookSecrets takes the current secret, and the one before that, or an empty one.
func NewWebhookSecrets(current, previous string) (*WebhookSecrets, error) {
	s := &WebhookSecrets{}
	return s, s.Set(current, previous)
}

// Set takes other secrets into use. It refuses to be without a current one, and keeps what it has then.
func (s *WebhookSecrets) Set(current, previous string) error {
	if current == "" {
		return errors.New("the webhook secret is empty: set the secret that the GitHub App signs its webhooks with")
	}
	if strings.ContainsAny(current+previous, "\r\n") {
		return errors.New("the webhook secret has more than one line: give each secret a file of its own")
	}
	s.pair.Store(&[2]string{current, previous})
	return nil
}

// Verify checks the HeaderSignature of a webhook over its raw body, and says which secret made it. Without a secret it fails:
// a server that has none must accept nothing. How long it takes does not depend on which secret matches, if any (NET-6).
func (s *WebhookSecrets) Verify(header string, body []byte) (SecretPosition, error) {
	pair := s.pair.Load()
	if pair == nil {
		return "", fmt.Errorf("%w: no webhook secret is configured", ErrBadSignature)
	}
	current := VerifySignature(pair[0], header, body)
	previous := current
	if pair[1] != "" {
		previous = VerifySignature(pair[1], header, body) // also when the first matches: both take their time
	}
	switch {
	case current == nil:
		return SecretCurrent, nil
	case previous == nil:
		return SecretPrevious, nil
	default:
		return "", current
	}
}

// VerifySignature is Verify for one secret, which must not be empty.
func VerifySignature(secret, header string, body []byte) error {
	if secret == "" {
		return fmt.Errorf("%w: no webhook secret is configured", ErrBadSignature)
	}
	text, ok := strings.CutPrefix(header, signaturePrefix)
	if !ok {
		return fmt.Errorf("%w: no %s header with sha256= was sent", ErrBadSignature, HeaderSignature)
	}
	given, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Errorf("%w: it is not hexadecimal", ErrBadSignature)
	}
	if !hmac.Equal(given, sign(secret, body)) { // NET-6: constant time
		return ErrBadSignature
	}
	return nil
}

// Sign makes the HeaderSignature of a body: what GitHub sends, and whoever replays a delivery.
func Sign(secret string, body []byte) string {
	return signaturePrefix + hex.EncodeToString(sign(secret, body))
}

func sign(secret string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body) // never fails
	return mac.Sum(nil)
}
