package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Headers of a webhook delivery.
const (
	HeaderEvent     = "X-GitHub-Event"
	HeaderDelivery  = "X-GitHub-Delivery"
	HeaderSignature = "X-Hub-Signature-256"
)

// MaxWebhookBody is the largest payload that GitHub sends, in bytes.
const MaxWebhookBody = 25 << 20

// ErrBadSignature: the body was not signed with our secret. Nothing of it may be believed, or parsed (NET-6).
var ErrBadSignature = errors.New("the webhook's signature does not match")

const signaturePrefix = "sha256="

// VerifySignature checks the HeaderSignature of a webhook over its raw body. It fails for an empty secret too: a
// server without one must accept nothing.
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
