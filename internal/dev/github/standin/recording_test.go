package standin_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exchange is one request of GitHub's runner, and what it was answered then.
type exchange struct {
	At      float64 `json:"t"` // seconds since the first request
	Request struct {
		Method  string
		Path    string
		Headers map[string]string
		Body    json.RawMessage // JSON, or a string if it is none
	}
	Answer struct {
		Status *int // none if the runner gave up waiting
		Body   json.RawMessage
		After  float64
	}
}

func (e exchange) status() int {
	if e.Answer.Status == nil {
		return 0
	}
	return *e.Answer.Status
}

// held reports whether the answer took so long that the runner made other requests in between.
func (e exchange) held() bool { return e.Answer.After > 1 || e.Answer.Status == nil }

// answers reports whether the answer was a message of that type.
func (e exchange) answers(messageType string) bool {
	return bytes.Contains(e.Answer.Body, []byte(`"`+messageType+`"`))
}

func readRecording(t *testing.T, name string) []exchange {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "recordings", name+".jsonl"))
	require.NoError(t, err)
	defer file.Close()
	var out []exchange
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	require.True(t, lines.Scan(), "the first line names the recording")
	require.Contains(t, lines.Text(), `"recording": "`+name+`"`)
	for lines.Scan() {
		var one exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &one))
		out = append(out, one)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, out)
	return out
}

// serviceCall is the last part of a call of the results or the launch service, whose path names ids before it.
var serviceCall = regexp.MustCompile(`^/_services/results/twirp/.*\.(\w+/\w+)$|/(runnerresolve/actions)$`)

// route is a request's method and path, without what differs from job to job.
func route(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	if m := serviceCall.FindStringSubmatch(path); m != nil {
		return method + " " + m[1] + m[2]
	}
	switch {
	case strings.HasPrefix(path, "/_services/results/blobs/"):
		return method + " blobs"
	case strings.HasPrefix(path, "/api/v3/repos/acme/app/actions/runners/"):
		return method + " /api/v3/repos/acme/app/actions/runners/{runner}"
	}
	return method + " " + path
}

func (e exchange) route() string { return route(e.Request.Method, e.Request.Path) }

// claimsOf reads a JSON web token without checking its signature, as runners do.
func claimsOf(text string) (map[string]any, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%d parts instead of the three of a JSON web token", len(parts))
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, err
	}
	var claims map[string]any
	return claims, json.Unmarshal(data, &claims)
}

// translation says what stands in place of the recorded ids, names of jobs and addresses now.
type translation map[string]string

// text puts today's ids in. Longer ones come first: an address holds ids.
func (tr translation) text(recorded string) string {
	keys := make([]string, 0, len(tr))
	for key := range tr {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		pairs = append(pairs, key, tr[key])
	}
	return strings.NewReplacer(pairs...).Replace(recorded)
}

var recordedID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$|^http://github\.example/`)

// learn goes through a recorded answer and today's side by side. It fails where a recorded member is missing, or of another kind.
func (tr translation) learn(t *testing.T, at string, recorded, now any) {
	t.Helper()
	switch was := recorded.(type) {
	case map[string]any:
		is, same := now.(map[string]any)
		require.True(t, same, "%s: an object was recorded, not %v", at, now)
		for name, value := range was {
			require.Contains(t, is, name, at)
			tr.learn(t, at+"."+name, value, is[name])
		}
	case []any:
		is, same := now.([]any)
		require.True(t, same, "%s: a list was recorded, not %v", at, now)
		for i := range min(len(was), len(is)) {
			tr.learn(t, fmt.Sprintf("%s[%d]", at, i), was[i], is[i])
		}
	case string:
		is, same := now.(string)
		require.True(t, same, "%s: a string was recorded, not %v", at, now)
		tr.learnText(t, at, was, is)
	default:
		require.IsType(t, recorded, now, at)
	}
}

func (tr translation) learnText(t *testing.T, at, was, is string) {
	t.Helper()
	var inner, innerNow any
	switch {
	case was == is:
	case strings.HasPrefix(was, "{") && json.Unmarshal([]byte(was), &inner) == nil:
		require.NoError(t, json.Unmarshal([]byte(is), &innerNow), at)
		tr.learn(t, at, inner, innerNow)
	case recordedID.MatchString(was):
		tr[was] = is
		if path, signed := strings.CutPrefix(was, "http://github.example"); signed && strings.Contains(was, "?sig=") {
			tr[path] = is[strings.Index(is, "/_services/"):]
		}
	}
}
