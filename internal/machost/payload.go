package machost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Payload is the input of `bullpen host apply --stdin`: the desired state of the host, and the secrets for it. Printing it shows no secret.
type Payload struct {
	Config  Config
	Secrets Secrets
}

// maxPayload bounds the line that a payload is: a kubeconfig has some 10 KiB.
const maxPayload = 1 << 20

// wirePayload is the only form in which secrets travel, and it is not exported: any other encoding of a Payload has none.
type wirePayload struct {
	Config  json.RawMessage `json:"config"`
	Secrets wireSecrets     `json:"secrets,omitzero"`
}

type wireSecrets struct {
	Password            string `json:"password,omitempty"`
	BootstrapKubeconfig string `json:"bootstrapKubeconfig,omitempty"`
}

// EncodePayload makes the line, with its end, that ReadPayload reads. It holds the secrets in the clear: write it to the other
// end's standard input, and nowhere else (HOST-6).
//
// Text that is not UTF-8 is refused: JSON would replace a letter, and the password would be wrong.
func EncodePayload(p Payload) ([]byte, error) {
	for name, secret := range map[string]Secret{"password": p.Secrets.Password, "bootstrap kubeconfig": p.Secrets.BootstrapKubeconfig} {
		if !utf8.ValidString(secret.Reveal()) {
			return nil, fmt.Errorf("encoding the payload: the %s is not valid UTF-8", name)
		}
	}
	config, err := json.Marshal(p.Config)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line) // ends the line
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(wirePayload{config, wireSecrets{p.Secrets.Password.Reveal(), p.Secrets.BootstrapKubeconfig.Reveal()}})
	if err == nil && line.Len() > maxPayload {
		err = fmt.Errorf("it has %d bytes, and may have %d", line.Len(), maxPayload)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the payload: %w", err)
	}
	return line.Bytes(), nil
}

// ReadPayload reads one payload, and leaves what follows its line: confirmations come there. No error repeats anything of it.
func ReadPayload(r *bufio.Reader) (Payload, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxPayload {
			return Payload{}, fmt.Errorf("reading the payload: the line has more than %d bytes", maxPayload)
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return DecodePayload(line)
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return Payload{}, fmt.Errorf("reading the payload from standard input: %w", err)
		}
	}
}

// DecodePayload decodes what EncodePayload made. Unknown fields are refused: an older binary would leave undone what they ask for.
// The configuration is not validated. No error repeats anything of the secrets.
func DecodePayload(line []byte) (Payload, error) {
	if len(line) > maxPayload {
		return Payload{}, fmt.Errorf("decoding the payload: it has more than %d bytes", maxPayload)
	}
	var wire wirePayload
	if err := decodeStrictly(line, &wire); err != nil {
		return Payload{}, fmt.Errorf("decoding the payload: %w", withoutContent(err))
	}
	if len(wire.Config) == 0 {
		return Payload{}, errors.New("decoding the payload: it has no config")
	}
	config, err := decodeConfig(wire.Config)
	if err != nil {
		return Payload{}, fmt.Errorf("decoding the payload: %w", err)
	}
	return Payload{config, Secrets{NewSecret(wire.Secrets.Password), NewSecret(wire.Secrets.BootstrapKubeconfig)}}, nil
}

// decodeStrictly decodes one document, refuses fields that the type does not have, and anything after it.
func decodeStrictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// withoutContent says what is wrong with a document that holds secrets. The decoder's own words may quote a character of it, or
// the name of a field that was meant to be a value.
func withoutContent(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not JSON at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("the field that ends at byte %d must be of type %s", kind.Offset, kind.Type)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends too early")
	}
	return errors.New("it has a field that this version of bullpen does not know, or more than one document")
}
