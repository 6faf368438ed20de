package rights

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Use is one request of the audit log.
type Use struct {
	At time.Time
	// Right is exactly what was asked for.
	Right
	// Code is the answer's status, zero while there is none: a watch is noted when it begins.
	Code int
	// Forbidden indicates that the authorizer refused; an admission plug-in refuses with the same code. Why says who it was.
	Forbidden bool
	Why       string
}

// Refused reports whether the API server did not let the user do it.
func (u Use) Refused() bool { return u.Forbidden || u.Code == http.StatusForbidden }

// longestLine bounds a line of the log: an event with a large object.
const longestLine = 8 << 20

// ReadLog reads an audit log that the API server has written as lines of JSON, of any level from Metadata. The last line may be
// half a line: the API server was ended, or still writes it.
func ReadLog(log io.Reader) ([]Use, error) {
	lines := bufio.NewScanner(log)
	lines.Buffer(make([]byte, 0, 1<<16), longestLine)
	var uses []Use
	var broken error
	for n := 1; lines.Scan(); n++ {
		if broken != nil {
			return nil, broken
		}
		use, err := readEvent(lines.Bytes())
		if err != nil {
			broken = fmt.Errorf("reading line %d of the audit log: %w", n, err)
			continue
		}
		uses = append(uses, use)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return uses, nil
}

func readEvent(line []byte) (Use, error) {
	var event struct {
		Verb string `json:"verb"`
		URI  string `json:"requestURI"`
		User struct {
			Username string `json:"username"`
		} `json:"user"`
		Impersonated *struct {
			Username string `json:"username"`
		} `json:"impersonatedUser"`
		Object *struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
			Group       string `json:"apiGroup"`
		} `json:"objectRef"`
		Status struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"responseStatus"`
		At    time.Time         `json:"requestReceivedTimestamp"`
		Notes map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return Use{}, err
	}
	use := Use{
		At: event.At, Code: event.Status.Code, Right: Right{User: event.User.Username, Verb: event.Verb},
		Forbidden: event.Notes["authorization.k8s.io/decision"] == "forbid", Why: event.Notes["authorization.k8s.io/reason"],
	}
	if event.Impersonated != nil {
		use.User = event.Impersonated.Username
	}
	if !use.Forbidden && event.Status.Code == http.StatusForbidden {
		use.Why = event.Status.Message
	}
	if event.Object == nil {
		use.Path, _, _ = strings.Cut(event.URI, "?")
		return use, nil
	}
	use.Group, use.Resource, use.Namespace, use.Name = event.Object.Group, event.Object.Resource, event.Object.Namespace, event.Object.Name
	if event.Object.Subresource != "" {
		use.Resource += "/" + event.Object.Subresource
	} else if use.Verb == "create" {
		use.Name = "" // it is the new object's; the authorizer does not see it, so that no right to create has a name
	}
	return use, nil
}
