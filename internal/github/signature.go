package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
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

// ErrBadSignature: the body was not signed with a secret of ours. Nothing of it may be trusted, or parsed (NET-6).
var ErrBadSignature = errors.New("the webhook's signature does not match")

const signaturePrefix = "sha256="

// SecretPosition says which of the two secrets a webhook was signed with, and never the secret itself.
type SecretPosition string

// The positions. During a rotation both are in use: GitHub knows one of them, and only GitHub knows when it switches.
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
	v, err := s.Verifier(header)
	if err != nil {
		return "", err
	}
	_, _ = v.Write(body) // never fails
	return v.Verify()
}

// Verifier of one webhook with this HeaderSignature; its body must be written to it. ErrBadSignature when no body can match: the header is
// missing or malformed, or there is no secret.
func (s *WebhookSecrets) Verifier(header string) (*Verifier, error) {
	pair := s.pair.Load()
	if pair == nil || pair[0] == "" {
		return nil, fmt.Errorf("%w: no webhook secret is configured", ErrBadSignature)
	}
	given, err := parseSignature(header)
	if err != nil {
		return nil, err
	}
	v := &Verifier{given: given, current: newMAC(pair[0])}
	if pair[1] != "" {
		v.previous = newMAC(pair[1])
	}
	return v, nil
}

// Verifier checks the signature of a body that is written to it piece by piece. It is for one goroutine.
type Verifier struct {
	given             []byte
	current, previous hash.Hash // previous is nil when there is one secret
}

// Write takes the next piece of the body. It never fails.
func (v *Verifier) Write(piece []byte) (int, error) {
	v.current.Write(piece)
	if v.previous != nil {
		v.previous.Write(piece)
	}
	return len(piece), nil
}

// Verify says which secret signed what was written, or ErrBadSignature.
func (v *Verifier) Verify() (SecretPosition, error) {
	current := hmac.Equal(v.given, v.current.Sum(nil)) // NET-6: constant time
	// Also when the first matches: both take their time.
	previous := v.previous != nil && hmac.Equal(v.given, v.previous.Sum(nil)) // NET-6: constant time
	switch {
	case current:
		return SecretCurrent, nil
	case previous:
		return SecretPrevious, nil
	default:
		return "", ErrBadSignature
	}
}

// VerifySignature is Verify for one secret, which must not be empty.
func VerifySignature(secret, header string, body []byte) error {
	s := &WebhookSecrets{}
	s.pair.Store(&[2]string{secret})
	_, err := s.Verify(header, body)
	return err
}

func parseSignature(header string) ([]byte, error) {
	text, ok := strings.CutPrefix(header, signaturePrefix)
	if !ok {
		return nil, fmt.Errorf("%w: no %s header with sha256= was sent", ErrBadSignature, HeaderSignature)
	}
	if len(text) != hex.EncodedLen(sha256.Size) {
		return nil, fmt.Errorf("%w: it does not have %d hexadecimal digits", ErrBadSignature, hex.EncodedLen(sha256.Size))
	}
	given, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not hexadecimal", ErrBadSignature)
	}
	return given, nil
}

// Sign makes the HeaderSignature of a body, as GitHub sends it; for replayed deliveries.
func Sign(secret string, body []byte) string {
	mac := newMAC(secret)
	mac.Write(body) // never fails
	return signaturePrefix + hex.EncodeToString(mac.Sum(nil))
}

func newMAC(secret string) hash.Hash { return hmac.New(sha256.New, []byte(secret)) }
