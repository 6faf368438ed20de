package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// AuditEvent is what the checker reads of a line of the API server's audit log.
type AuditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject json.RawMessage `json:"requestObject"`
	At            time.Time       `json:"requestReceivedTimestamp"`
}

// Accepted reports whether the API server did it.
func (a AuditEvent) Accepted() bool {
	return a.ResponseStatus.Code >= 200 && a.ResponseStatus.Code < 300
}

// Is compares verb and resource ("pods", "pods/eviction").
func (a AuditEvent) Is(verb, resource string) bool {
	full := a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		full += "/" + a.ObjectRef.Subresource
	}
	return a.Verb == verb && full == resource
}

// String is the event in a line.
func (a AuditEvent) String() string {
	what := a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		what += "/" + a.ObjectRef.Subresource
	}
	return fmt.Sprintf("%s %s %s by %s → %d", a.Verb, what, a.ObjectRef.Name, a.User.Username, a.ResponseStatus.Code)
}

// readAudit keeps what is about pods and service accounts. An API server that was killed in the middle of a line continues
// in that line after its restart: such a line holds an event that is whole, behind one that is not.
func readAudit(path string) ([]AuditEvent, error) {
	var events []AuditEvent
	err := eachLine(path, func(line []byte, last bool) error {
		var event AuditEvent
		err := json.Unmarshal(line, &event)
		if err != nil {
			if at := strings.LastIndex(string(line), `{"kind":"Event"`); at > 0 {
				err = json.Unmarshal(line[at:], &event)
			}
		}
		if err != nil {
			if last {
				return nil
			}
			return errors.Join(fmt.Errorf("a line of the audit log cannot be read: %.200s", line), err)
		}
		if event.ObjectRef.Resource == "pods" || event.ObjectRef.Resource == "serviceaccounts" {
			events = append(events, event)
		}
		return nil
	})
	return events, err
}
