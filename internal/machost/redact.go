package machost

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

// Redactor removes secrets from all output (HOST-6). It is the last line of defence: no step puts one there.
type Redactor struct {
	forms []string // the longest first
	// hidesAll: a secret of one or two letters is in every text, and crossing it out would tell where.
	hidesAll bool
}

// shortest is how long a text must be to be looked for inside of others.
const shortest = 3

// NewRedactor knows the secrets in every form in which a program, an encoder or a shell would repeat them.
func NewRedactor(secrets Secrets) *Redactor {
	r := &Redactor{}
	for _, text := range []string{secrets.Password.Reveal(), secrets.BootstrapKubeconfig.Reveal()} {
		r.add(text)
	}
	if file, err := autologin.Encode(secrets.Password.Reveal()); err == nil {
		r.add(string(file))
	}
	for _, text := range credentialsIn(secrets.BootstrapKubeconfig.Reveal()) {
		r.add(text)
	}
	slices.SortFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
	r.forms = slices.Compact(r.forms)
	return r
}

func (r *Redactor) add(text string) {
	text = strings.Trim(text, "\r\n")
	if text == "" {
		return
	}
	if len(text) < shortest {
		r.hidesAll = true
		return
	}
	forms := []string{text, url.QueryEscape(text), url.PathEscape(text), hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text))),
		unquoted(strconv.Quote(text)), unquoted(strconv.QuoteToASCII(text)), strings.ReplaceAll(text, `'`, `'\''`), strings.ReplaceAll(text, `'`, `'"'"'`),
		strings.ReplaceAll(text, `"`, `\"`), backslashed(text), xmlEscape(text)}
	if plain, err := json.Marshal(text); err == nil {
		forms = append(forms, unquoted(string(plain)))
	}
	forms = append(forms, base64Forms(text)...)
	for _, form := range forms {
		if len(form) >= shortest {
			r.forms = append(r.forms, form)
		}
	}
}

func unquoted(text string) string { return text[1 : len(text)-1] }

// backslashed is how shells quote without quotes.
func backslashed(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c < 0x80 && !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// base64Forms are what base64 makes of the text wherever it stands in a longer one: the characters that its neighbours have no part in.
func base64Forms(text string) []string {
	var forms []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			encoded := encoding.EncodeToString([]byte(strings.Repeat("\x00", before) + text))
			first, last := []int{0, 2, 3}[before], len(encoded)
			if (before+len(text))%3 != 0 {
				last--
			}
			if last-first > shortest {
				forms = append(forms, encoded[first:last])
			}
		}
	}
	return forms
}

// credentialsIn are the texts by which a kubeconfig proves who its owner is: a part of it can leak alone.
func credentialsIn(kubeconfig string) []string {
	var file struct {
		Users []struct {
			User map[string]any `json:"user"`
		} `json:"users"`
	}
	if yaml.Unmarshal([]byte(kubeconfig), &file) != nil {
		return nil
	}
	var texts []string
	for _, user := range file.Users {
		for _, name := range []string{"token", "password", "client-key-data"} {
			if text, ok := user.User[name].(string); ok {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// Text returns the text without secrets.
func (r *Redactor) Text(text string) string {
	if r.hidesAll && text != "" {
		return redacted
	}
	for _, form := range r.forms {
		text = strings.ReplaceAll(text, form, redacted)
	}
	return text
}

// Event returns the event without secrets. Names, hashes and tokens are the engine's own.
func (r *Redactor) Event(e Event) Event {
	e.Message, e.File, e.Remedy = r.Text(e.Message), r.Text(e.File), r.Text(e.Remedy)
	e.Changes = slices.Clone(e.Changes)
	for i, change := range e.Changes {
		e.Changes[i] = r.Text(change)
	}
	return e
}

// Failure returns the failure without secrets. An error whose words hold one can still be asked what it is, and not be unwrapped.
func (r *Redactor) Failure(e *StepError) *StepError {
	safe := &StepError{Step: e.Step, File: r.Text(e.File), Remedy: r.Text(e.Remedy), Err: e.Err}
	if r.saysOne(e.Err) {
		safe.Err = &hidingError{r.Text(e.Err.Error()), e.Err}
	}
	return safe
}

// saysOne reports whether an error, or what it wraps, holds a secret.
func (r *Redactor) saysOne(err error) bool {
	if err == nil {
		return false
	}
	if text := err.Error(); r.Text(text) != text {
		return true
	}
	switch wrapping := err.(type) { //nolint:errorlint // it goes through the chain itself
	case interface{ Unwrap() error }:
		return r.saysOne(wrapping.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(wrapping.Unwrap(), r.saysOne)
	}
	return false
}

type hidingError struct {
	text   string
	reason error
}

// Error is the text without secrets.
func (e *hidingError) Error() string { return e.text }

// Is keeps errors.Is working without giving the reason away.
func (e *hidingError) Is(target error) bool { return errors.Is(e.reason, target) }

// GoString is for %#v, which would print the reason.
func (e *hidingError) GoString() string { return e.text }

func xmlEscape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace(text)
}
