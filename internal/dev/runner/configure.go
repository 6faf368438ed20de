package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrConfigured reports that the directory holds a registration already: GitHub's runner refuses to make another, too.
var ErrConfigured = errors.New("the runner is already configured: remove its .runner file first")

// registrationFiles are those of a JIT config, in the runner's directory.
var registrationFiles = []string{".runner", ".credentials", ".credentials_rsaparams"}

const inputPrefix = "ACTIONS_RUNNER_INPUT_"

// registerTimeout bounds the whole of a registration.
const registerTimeout = time.Minute

// ConfigureOptions of Configure.
type ConfigureOptions struct {
	// Root is the directory to write into.
	Root string
	// Environ holds ACTIONS_RUNNER_INPUT_URL, _TOKEN and _NAME, and may hold _LABELS, _RUNNERGROUP, _WORK, _REPLACE, _EPHEMERAL and
	// _DISABLEUPDATE.
	Environ []string
	// NoDefaultLabels registers the runner with its own labels alone.
	NoDefaultLabels bool
	// HTTP is the client for all calls; a usual one when nil.
	HTTP *http.Client
	// Version is the listener version that is reported; a recent one when empty.
	Version string
}

// input is what a runner is asked to register as.
type input struct {
	url, token, name, group, work, version string
	labels                                 []string
	replace, ephemeral, disableUpdate      bool
	noDefaultLabels                        bool
}

func readInput(environ []string) (input, error) {
	value := func(name string) (text string) {
		for _, entry := range environ {
			if v, ok := strings.CutPrefix(entry, inputPrefix+name+"="); ok {
				text = strings.TrimSpace(v)
			}
		}
		return text
	}
	flag := func(name string) bool {
		set, err := strconv.ParseBool(value(name))
		return err == nil && set
	}
	in := input{
		url: value("URL"), token: value("TOKEN"), name: value("NAME"), group: value("RUNNERGROUP"), work: value("WORK"),
		replace: flag("REPLACE"), ephemeral: flag("EPHEMERAL"), disableUpdate: flag("DISABLEUPDATE"),
	}
	for label := range strings.SplitSeq(value("LABELS"), ",") {
		if label = strings.TrimSpace(label); label != "" {
			in.labels = append(in.labels, label)
		}
	}
	switch {
	case !webURL(in.url):
		return in, errors.New("set $" + inputPrefix + "URL to the address of an organization, a repository or an enterprise")
	case in.token == "":
		return in, errors.New("set $" + inputPrefix + "TOKEN to a registration token")
	case in.name == "":
		return in, errors.New("set $" + inputPrefix + "NAME to the runner's name")
	}
	return in, nil
}

// Configure registers a runner by a registration token, and writes .runner, .credentials and .credentials_rsaparams into its directory. It
// follows GitHub's runner (its "runner admin" flow): the key is made here, and only its public half leaves the machine.
func Configure(ctx context.Context, opts ConfigureOptions) error {
	if _, err := os.Lstat(filepath.Join(opts.Root, registrationFiles[0])); err == nil {
		return ErrConfigured
	}
	in, err := readInput(opts.Environ)
	if err != nil {
		return err
	}
	if in.noDefaultLabels = opts.NoDefaultLabels; in.noDefaultLabels && len(in.labels) == 0 {
		return errors.New("a runner needs a label: set $" + inputPrefix + "LABELS, or leave out --no-default-labels")
	}
	if in.version = opts.Version; in.version == "" {
		in.version = listenerVersion
	}
	if opts.HTTP == nil {
		opts.HTTP = &http.Client{}
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("making the runner's key: %w", err)
	}
	r := registration{input: in, http: opts.HTTP}
	done, err := r.register(ctx, &key.PublicKey)
	if err != nil {
		return err
	}
	return write(opts.Root, r, done, key)
}

// registration makes the calls of one registration.
type registration struct {
	input
	http *http.Client
}

type registered struct {
	ID            int64  `json:"id"`
	Name          string `json:"name"`
	Authorization struct {
		AuthorizationURL string `json:"authorization_url"`
		ServerURL        string `json:"server_url"`
		ClientID         string `json:"client_id"`
	} `json:"authorization"`
}

// api is the URL of a path of the REST API, which GitHub Enterprise Server has below its web URL.
func (r *registration) api(path string) string {
	u, err := url.Parse(r.url)
	if err != nil {
		return path // it was parsed before
	}
	if strings.EqualFold(u.Host, "github.com") {
		return u.Scheme + "://api." + u.Host + path
	}
	return u.Scheme + "://" + u.Host + "/api/v3" + path
}

// entity is where the API has what the runner is for.
func (r *registration) entity() string {
	u, err := url.Parse(r.url)
	if err != nil {
		return ""
	}
	path := strings.Trim(u.Path, "/")
	switch first, _, two := strings.Cut(path, "/"); {
	case !two:
		return r.api("/orgs/" + path + "/actions")
	case strings.EqualFold(first, "enterprises"):
		return r.api("/" + path + "/actions")
	}
	return r.api("/repos/" + path + "/actions")
}

func (r *registration) register(ctx context.Context, key *rsa.PublicKey) (*registered, error) {
	var flow struct {
		V2 bool `json:"use_v2_flow"`
	}
	err := r.call(ctx, "beginning the registration", http.MethodPost, r.api("/actions/runner-registration"),
		map[string]string{"url": r.url, "runner_event": "register"}, &flow)
	if err != nil {
		return nil, err
	}
	if !flow.V2 {
		return nil, errors.New("beginning the registration: this GitHub registers runners by its old flow, which this runner does not speak")
	}
	body, err := r.body(ctx, key)
	if err != nil {
		return nil, err
	}
	var done registered
	if err := r.call(ctx, "registering the runner", http.MethodPost, r.api("/actions/runners/register"), body, &done); err != nil {
		return nil, err
	}
	return &done, nil
}

// body of the registration itself: the group's id, and whether a runner of that name is replaced.
func (r *registration) body(ctx context.Context, key *rsa.PublicKey) (map[string]any, error) {
	var groups struct {
		Groups []struct {
			ID      int64  `json:"id"`
			Name    string `json:"name"`
			Default bool   `json:"default"`
		} `json:"runner_groups"`
	}
	if err := r.call(ctx, "listing runner groups", http.MethodGet, r.entity()+"/runner-groups", nil, &groups); err != nil {
		return nil, err
	}
	group := int64(0)
	for _, one := range groups.Groups {
		if r.group == "" && one.Default || r.group != "" && strings.EqualFold(one.Name, r.group) {
			group = one.ID
		}
	}
	if group == 0 {
		return nil, fmt.Errorf("registering the runner: there is no runner group %q", r.group)
	}
	var same struct {
		Runners []struct {
			ID int64 `json:"id"`
		} `json:"runners"`
	}
	address := r.entity() + "/runners?" + url.Values{"name": {r.name}}.Encode()
	if err := r.call(ctx, "looking for a runner of that name", http.MethodGet, address, nil, &same); err != nil {
		return nil, err
	}
	body := map[string]any{
		"url": r.url, "group_id": group, "name": r.name, "version": r.version, "updates_disabled": r.disableUpdate,
		"ephemeral": r.ephemeral, "labels": r.allLabels(), "public_key": publicKey(key),
	}
	if len(same.Runners) > 0 {
		if !r.replace {
			return nil, fmt.Errorf("registering the runner: one named %s exists, and may not be replaced", r.name)
		}
		body["replace"], body["runner_id"] = true, same.Runners[0].ID
	}
	return body, nil
}

func (r *registration) allLabels() []map[string]string {
	var all []map[string]string
	system := []string{"self-hosted", osName(), archName()}
	if r.noDefaultLabels {
		system = nil
	}
	for _, name := range slices.Concat(system, r.labels) {
		known := slices.ContainsFunc(all, func(one map[string]string) bool { return strings.EqualFold(one["name"], name) })
		if known {
			continue
		}
		kind := "User"
		if slices.Contains(system, name) {
			kind = "System"
		}
		all = append(all, map[string]string{"name": name, "type": kind})
	}
	return all
}

// publicKey is the key as .NET writes it.
func publicKey(key *rsa.PublicKey) string {
	text := func(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }
	return "<RSAKeyValue><Modulus>" + text(key.N) + "</Modulus><Exponent>" + text(big.NewInt(int64(key.E))) + "</Exponent></RSAKeyValue>"
}

// call makes one call with the registration token, of which its errors show nothing.
func (r *registration) call(ctx context.Context, op, method, address string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	req.Header.Set("Authorization", "RemoteAuth "+r.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := r.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: reading the answer: %w", op, err)
	}
	if res.StatusCode >= 300 {
		return failure(op, res.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s: the answer is not the JSON expected: %w", op, err)
	}
	return nil
}

// write leaves the registration in the runner's directory, .runner last: it says that the rest is there.
func write(root string, r registration, done *registered, key *rsa.PrivateKey) error {
	number := func(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }
	work := r.work
	if work == "" {
		work = "_work"
	}
	contents := []any{
		map[string]any{
			"agentId": done.ID, "agentName": r.name, "serverUrlV2": done.Authorization.ServerURL, "useV2Flow": true,
			"gitHubUrl": r.url, "workFolder": work, "ephemeral": r.ephemeral, "disableUpdate": r.disableUpdate,
		},
		map[string]any{"scheme": "OAuth", "data": map[string]string{
			"clientId": done.Authorization.ClientID, "authorizationUrl": done.Authorization.AuthorizationURL,
		}},
		map[string]string{
			"modulus": number(key.N), "exponent": number(big.NewInt(int64(key.E))), "d": number(key.D),
			"p": number(key.Primes[0]), "q": number(key.Primes[1]),
			"dp": number(key.Precomputed.Dp), "dq": number(key.Precomputed.Dq), "inverseQ": number(key.Precomputed.Qinv),
		},
	}
	for i := len(contents) - 1; i >= 0; i-- {
		data, err := json.Marshal(contents[i])
		if err == nil {
			err = os.WriteFile(filepath.Join(root, registrationFiles[i]), data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("writing the registration: %w", err)
		}
	}
	return nil
}

// loadConfig reads what Configure has written.
func loadConfig(root string) (*Config, error) {
	files := map[string][]byte{}
	for _, name := range registrationFiles {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("the runner is not configured: %w", err)
		}
		files[name] = data
	}
	return decodeFiles(files)
}
