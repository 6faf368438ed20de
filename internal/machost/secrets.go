package machost

import (
	"fmt"
	"io"
	"log/slog"
)

// Secrets are never shown (HOST-6). They reach a host on standard input alone.
type Secrets struct {
	// Password is the user's, for automatic login and for the first sudo. Empty: both must have been set up, and are only checked.
	Password Secret
	// BootstrapKubeconfig is how the node agent asks for its first certificate. Empty: it has one.
	BootstrapKubeconfig Secret
}

// Secret is a text that does not print: not by fmt, not by JSON, not by slog. Reveal alone returns it.
//
// The text is behind a pointer because fmt calls no methods of what it finds in unexported fields: there it prints the address.
type Secret struct{ text *string }

// redacted is what is shown in a secret's place.
const redacted = "[redacted]"

// NewSecret keeps a text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the text, for the one place that needs it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty reports whether there is no text.
func (s Secret) Empty() bool { return s.text == nil }

// String does not return the text.
func (s Secret) String() string { return redacted }

// GoString does not return the text.
func (s Secret) GoString() string { return redacted }

// Format prints no text, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON does not return the text: EncodePayload is the one way by which it travels.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText does not return the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue does not return the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
