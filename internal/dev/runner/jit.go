package runner

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/url"
	"strconv"
	"strings"
)

// maxJIT is the largest JIT config read, in bytes; real ones have about four thousand.
const maxJIT = 1 << 20

// Config is what a JIT config says. It holds a private key: never log it.
type Config struct {
	AgentID       int64
	AgentName     string
	ServerURL     string // of the old flow's tenant
	ServerURLV2   string
	WorkFolder    string
	Ephemeral     bool
	DisableUpdate bool

	clientID         string
	authorizationURL string
	key              *rsa.PrivateKey
}

// String keeps the credentials out of printed Configs.
func (c *Config) String() string { return "JIT config of runner " + c.AgentName }

// DecodeJIT reads the base64 text that generate-jitconfig returned. Errors wrap [ErrBadJIT] and never quote it.
func DecodeJIT(blob string) (*Config, error) {
	if len(blob) > maxJIT {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrBadJIT, maxJIT)
	}
	files, err := jitFiles(blob)
	if err != nil {
		return nil, err
	}
	return decodeFiles(files)
}

// decodeFiles reads the files that a registration consists of, by their lower-case names.
func decodeFiles(files map[string][]byte) (*Config, error) {
	var settings, credentials, key fields
	for _, f := range []struct {
		name string
		into *fields
	}{{".runner", &settings}, {".credentials", &credentials}, {".credentials_rsaparams", &key}} {
		if err := json.Unmarshal(files[f.name], f.into); err != nil {
			return nil, fmt.Errorf("%w: its part %s is missing or no JSON object", ErrBadJIT, f.name)
		}
	}
	c := &Config{
		AgentName: settings.text("AgentName"), ServerURL: settings.text("ServerUrl"), ServerURLV2: settings.text("ServerUrlV2"),
		WorkFolder: settings.text("WorkFolder"), Ephemeral: settings.flag("Ephemeral"), DisableUpdate: settings.flag("DisableUpdate"),
	}
	c.AgentID, _ = strconv.ParseInt(settings.text("AgentId"), 10, 64)
	if err := c.checkSettings(settings); err != nil {
		return nil, err
	}
	if err := c.readCredentials(credentials); err != nil {
		return nil, err
	}
	var err error
	if c.key, err = rsaKey(key); err != nil {
		return nil, err
	}
	return c, nil
}

func jitFiles(blob string) (map[string][]byte, error) {
	outer, err := base64.StdEncoding.DecodeString(strings.TrimSpace(blob))
	if err != nil {
		return nil, fmt.Errorf("%w: it is not base64; pass encoded_jit_config as GitHub returned it", ErrBadJIT)
	}
	var names map[string]string
	if err := json.Unmarshal(outer, &names); err != nil {
		return nil, fmt.Errorf("%w: it does not hold a JSON object of files", ErrBadJIT)
	}
	files := make(map[string][]byte, len(names))
	for name, content := range names {
		data, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			return nil, fmt.Errorf("%w: one of its files is not base64", ErrBadJIT)
		}
		// The files are written by .NET, which may begin them with a byte order mark.
		files[strings.ToLower(name)] = []byte(strings.TrimPrefix(string(data), "\ufeff"))
	}
	return files, nil
}

func (c *Config) checkSettings(settings fields) error {
	if !settings.flag("UseV2Flow") || c.ServerURLV2 == "" {
		return fmt.Errorf("%w: this runner speaks the V2 flow only, and UseV2Flow or ServerUrlV2 is not set", ErrBadJIT)
	}
	if !webURL(c.ServerURLV2) {
		return fmt.Errorf("%w: ServerUrlV2 is no http or https address", ErrBadJIT)
	}
	if c.AgentName == "" {
		return fmt.Errorf("%w: AgentName is empty", ErrBadJIT)
	}
	return nil
}

func (c *Config) readCredentials(credentials fields) error {
	if scheme := credentials.text("Scheme"); !strings.EqualFold(scheme, "OAuth") {
		return fmt.Errorf("%w: the credentials' scheme is not OAuth", ErrBadJIT)
	}
	var data fields
	if err := json.Unmarshal(credentials.raw("Data"), &data); err != nil {
		return fmt.Errorf("%w: the credentials hold no data", ErrBadJIT)
	}
	c.clientID, c.authorizationURL = data.text("ClientId"), data.text("AuthorizationUrl")
	if c.clientID == "" || !webURL(c.authorizationURL) {
		return fmt.Errorf("%w: the credentials name no client or no http or https AuthorizationUrl", ErrBadJIT)
	}
	return nil
}

func webURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// fields is a JSON object whose scalars may be written as strings or not: .NET clients do both. Keys are matched as
// spelled, or else without regard to case.
type fields map[string]json.RawMessage

func (f fields) raw(name string) json.RawMessage {
	raw, ok := f[name]
	if !ok {
		for k, v := range f {
			if strings.EqualFold(k, name) {
				raw = v
			}
		}
	}
	return raw
}

func (f fields) text(name string) string {
	raw := f.raw(name)
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	if text := string(raw); text != "null" && !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return text
	}
	return ""
}

func (f fields) flag(name string) bool { return strings.EqualFold(f.text(name), "true") }

// maxKeyBits bounds the work that a hostile key could cause.
const maxKeyBits = 8192

func rsaKey(params fields) (*rsa.PrivateKey, error) {
	number := func(name string) *big.Int {
		data, err := base64.StdEncoding.DecodeString(params.text(name))
		if err != nil || len(data)*8 > maxKeyBits {
			return new(big.Int)
		}
		return new(big.Int).SetBytes(data)
	}
	e := number("exponent")
	if !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
		return nil, fmt.Errorf("%w: its RSA key has no usable exponent", ErrBadJIT)
	}
	key := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: number("modulus"), E: int(e.Int64())},
		D:         number("d"),
		Primes:    []*big.Int{number("p"), number("q")},
	}
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("%w: its RSA key is not valid", ErrBadJIT)
	}
	key.Precompute()
	return key, nil
}
