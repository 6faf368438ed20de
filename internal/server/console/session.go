package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// cookieName is of the session's cookie.
const cookieName = "bullpen_session"

// sessionLife is the maximum duration of a session. It also ends when its token does: each page asks the cluster again.
const sessionLife = 12 * time.Hour

// codeLife is how long a code to log in with can be used, once.
const codeLife = time.Minute

// maxCookie is what browsers keep of one cookie, less its name and attributes.
const maxCookie = 3900

// What something was sealed for: what was made for one purpose opens for no other.
const (
	forSession = "session"
	forCode    = "code"
	forForm    = "form"
	forLogin   = "login"
)

// sealed is the content of a cookie or a code. The token in it is encrypted: it is in no log, URL or page, and a stolen cookie holds
// nothing that the cluster would accept.
type sealed struct {
	Token string    `json:"token,omitempty"`
	Until time.Time `json:"until"`
	ID    string    `json:"id,omitempty"`   // of a code, of a form, or of a login at the identity provider
	Name  string    `json:"name,omitempty"` // of the token's user, for pages to show

	User     *admin.User `json:"user,omitempty"`     // of a session that the identity provider began
	Nonce    string      `json:"nonce,omitempty"`    // of a login there, as is Verifier
	Verifier string      `json:"verifier,omitempty"` // proves to the provider that who began the login ends it (RFC 7636)
	Next     string      `json:"next,omitempty"`     // where a login leads
}

// errNoSession: there is none, it has expired, or it is forged.
var errNoSession = errors.New("not logged in")

// sealer encrypts and authenticates. Every replica has the same key, so any can open what another has sealed.
type sealer struct{ aead cipher.AEAD }

func newSealer(secret []byte) (*sealer, error) {
	if len(secret) < 16 {
		return nil, errors.New("the secret for sessions is too short")
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "bullpen console session v1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead}, nil
}

func (s *sealer) seal(purpose string, content sealed) (string, error) {
	plain, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding a session: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(purpose))), nil
}

// open returns errNoSession for whatever was not sealed for that purpose, or is over.
func (s *sealer) open(purpose, text string, now time.Time) (sealed, error) {
	var content sealed
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return sealed{}, errNoSession
	}
	plain, err := s.aead.Open(nil, nil, raw, []byte(purpose))
	if err != nil || json.Unmarshal(plain, &content) != nil || !now.Before(content.Until) {
		return sealed{}, errNoSession
	}
	return content, nil
}

// caller is whom a request speaks for; errNoSession.
func (c *Console) caller(r *http.Request) (caller, error) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return caller{}, errNoSession
	}
	session, err := c.seal.open(forSession, cookie.Value, c.opt.Now())
	if err == nil && session.User != nil && c.provider == nil { // logging in that way was switched off
		err = errNoSession
	}
	who := caller{token: session.Token, user: session.User, name: session.Name}
	if who.user != nil {
		who.name = who.user.Name
	}
	return who, err
}

// setSession logs in; with an empty value it logs out.
func setSession(w http.ResponseWriter, r *http.Request, value string, life time.Duration) {
	cookie := &http.Cookie{
		Name: cookieName, Value: value, Path: "/ui", MaxAge: int(life / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure(r),
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// secure reports whether the browser used https. An Ingress sets the header; a client that forges it gets a cookie that is sent less.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// inTheClear reports whether a token that is sent with this request is in the clear on a network.
func inTheClear(r *http.Request) bool {
	if secure(r) {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// usedCodes remembers which codes were used, for as long as they could be used again.
type usedCodes struct {
	mu   sync.Mutex
	used map[string]time.Time
}

func newUsedCodes() *usedCodes { return &usedCodes{used: map[string]time.Time{}} }

// use reports false for a code that was used before.
func (u *usedCodes) use(id string, until, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for old, over := range u.used {
		if !now.Before(over) {
			delete(u.used, old)
		}
	}
	if _, used := u.used[id]; used {
		return false
	}
	u.used[id] = until
	return true
}

func newCodeID() string { return rand.Text() }
