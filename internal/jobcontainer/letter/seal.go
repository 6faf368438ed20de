package letter

import (
	"bytes"
	"compress/flate"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// Bounds of what is decoded.
const (
	MaxRequestText  = 64 << 10 // characters of a sealed request
	maxRequestJSON  = 256 << 10
	maxDeliveryJSON = 512 << 10 // it is much larger than its compressed form where a job has chosen it
)

// purpose separates these messages from any others that are sealed to the same key.
const purpose = "bullpen job containers 1"

// ErrMalformed is in every error about text that was not written by this package, or was changed or cut.
var ErrMalformed = errors.New("malformed")

// ErrOtherKey is returned for a request that this key does not open: it was sealed to another key, or changed.
var ErrOtherKey = errors.New("not sealed to this key")

// PrivateKey opens requests.
type PrivateKey struct {
	key  hpke.PrivateKey
	seed []byte
}

// NewPrivateKey makes a random one.
func NewPrivateKey() (*PrivateKey, error) {
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // never fails: see crypto/rand
	return ParsePrivateKey(seed)
}

// ParsePrivateKey reads the 32 bytes of an X25519 key.
func ParsePrivateKey(seed []byte) (*PrivateKey, error) {
	scalar, err := ecdh.X25519().NewPrivateKey(seed)
	if err != nil {
		return nil, fmt.Errorf("reading the private key for job containers: %w", err)
	}
	key, err := hpke.NewDHKEMPrivateKey(scalar)
	if err != nil {
		return nil, fmt.Errorf("reading the private key for job containers: %w", err)
	}
	return &PrivateKey{key: key, seed: bytes.Clone(seed)}, nil
}

// Bytes is what ParsePrivateKey reads.
func (k *PrivateKey) Bytes() []byte { return bytes.Clone(k.seed) }

// Public is the key for Seal, in base64.
func (k *PrivateKey) Public() string {
	return base64.StdEncoding.EncodeToString(k.key.PublicKey().Bytes())
}

// Seal compresses a request and encrypts it to a public key. The text has characters of base64url only, at most MaxRequestText.
func Seal(request jobcontainer.Request, public string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(public)
	if err != nil {
		return "", fmt.Errorf("reading the public key for job containers: %w", err)
	}
	point, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return "", fmt.Errorf("reading the public key for job containers: %w", err)
	}
	recipient, err := hpke.NewDHKEMPublicKey(point)
	if err != nil {
		return "", fmt.Errorf("reading the public key for job containers: %w", err)
	}
	packed, _, err := pack(request)
	if err != nil {
		return "", fmt.Errorf("encoding a request for containers: %w", err)
	}
	sealed, err := hpke.Seal(recipient, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(purpose), packed)
	if err != nil {
		return "", fmt.Errorf("sealing a request for containers: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString(sealed)
	if len(text) > MaxRequestText {
		return "", fmt.Errorf("sealing a request for containers: it has %d characters, and at most %d are sent: use fewer containers", len(text), MaxRequestText)
	}
	return text, nil
}

// Open is the reverse of Seal. Its errors repeat nothing of the text.
func (k *PrivateKey) Open(text string) (jobcontainer.Request, error) {
	var request jobcontainer.Request
	if len(text) > MaxRequestText {
		return request, fmt.Errorf("opening a request for containers: %w: too long", ErrMalformed)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return request, fmt.Errorf("opening a request for containers: %w: not base64url", ErrMalformed)
	}
	packed, err := hpke.Open(k.key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(purpose), sealed)
	if err != nil {
		return request, fmt.Errorf("opening a request for containers: %w", ErrOtherKey)
	}
	if err := unpack(packed, maxRequestJSON, true, &request); err != nil {
		return jobcontainer.Request{}, fmt.Errorf("opening a request for containers: %w", err)
	}
	return request, nil
}

// pack makes compressed JSON, and says how many bytes the JSON has.
func pack(value any) (compressed []byte, size int, err error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, 0, err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return nil, 0, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, 0, err
	}
	if err := w.Close(); err != nil {
		return nil, 0, err
	}
	return packed.Bytes(), len(raw), nil
}

// unpack reads at most so many bytes of JSON: a few compressed bytes may stand for very many. Fields that this release does not know are
// an error if strict.
func unpack(packed []byte, most int64, strict bool, value any) error {
	r := flate.NewReader(bytes.NewReader(packed))
	defer func() { _ = r.Close() }()
	raw, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return fmt.Errorf("%w: not compressed", ErrMalformed)
	}
	if int64(len(raw)) > most {
		return fmt.Errorf("%w: more than %d bytes", ErrMalformed, most)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if strict {
		decoder.DisallowUnknownFields()
	}
	if decoder.Decode(value) != nil || decoder.More() { // the decoder's error repeats what it read
		return fmt.Errorf("%w: not the expected JSON", ErrMalformed)
	}
	return nil
}
