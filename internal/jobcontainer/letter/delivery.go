package letter

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// Bounds of a delivery in a container's arguments. Linux passes no string of more than 128 KiB to a program (MAX_ARG_STRLEN in
// include/uapi/linux/binfmts.h), and an object that is larger than about 1.5 MiB is refused by etcd.
const (
	// MaxDelivery is how many characters the arguments of one delivery have together.
	MaxDelivery = 380 << 10
	argument    = 96 << 10
)

// Delivery is what the controller sends into a pod.
type Delivery struct {
	Responses []jobcontainer.Response `json:"responses,omitempty"`
	Failures  []Failure               `json:"failures,omitempty"`
	// Closed, if set, is why no further request is read: a sentence for the job's log.
	Closed string `json:"closed,omitempty"`
}

// Failure is about a container that was added to the pod and does not run.
type Failure struct {
	Container string `json:"container"`
	// Text is a sentence for the job's log.
	Text string `json:"text"`
	// OutOfMemory says that it was killed because the job used more memory than its pool allows. Text says so, too, without the container's
	// name in the workflow.
	OutOfMemory bool `json:"outOfMemory,omitempty"`
	// Final says that the container will not start any more. Otherwise the kubelet tries again.
	Final bool `json:"final"`
	// Retriable says that it has not started, and may if it is asked for again.
	Retriable bool `json:"retriable,omitempty"`
}

// TooLargeError is returned for a delivery that is too large before or after its compression.
type TooLargeError struct{ Size, Most int } // characters

// Error names both sizes.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("it has %d characters, and at most %d are sent", e.Size, e.Most)
}

// Arguments encodes a delivery. It returns a *TooLargeError for one that does not fit, or that ParseDelivery would not read.
func (d Delivery) Arguments() ([]string, error) {
	packed, size, err := pack(d)
	if err != nil {
		return nil, fmt.Errorf("encoding a response: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString(packed)
	for _, e := range []TooLargeError{{size, maxDeliveryJSON}, {len(text), MaxDelivery}} {
		if e.Size > e.Most {
			return nil, fmt.Errorf("encoding a response: %w", &e)
		}
	}
	var arguments []string
	for len(text) > argument {
		arguments, text = append(arguments, text[:argument]), text[argument:]
	}
	return append(arguments, text), nil
}

// ParseDelivery is the reverse of Arguments.
func ParseDelivery(arguments []string) (Delivery, error) {
	var d Delivery
	text := strings.Join(arguments, "")
	if len(text) > MaxDelivery {
		return d, fmt.Errorf("reading a response: %w: too long", ErrMalformed)
	}
	packed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return d, fmt.Errorf("reading a response: %w: not base64url", ErrMalformed)
	}
	if err := unpack(packed, maxDeliveryJSON, false, &d); err != nil {
		return Delivery{}, fmt.Errorf("reading a response: %w", err)
	}
	return d, nil
}
