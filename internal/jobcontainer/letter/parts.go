package letter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A kubelet cuts the termination messages of a pod's containers: each to 4096 bytes, and each to an equal share of 12 KiB, of which the
// number of all containers in the pod's spec is the divisor (normalizeStatus, pkg/kubelet/status/status_manager.go, and
// MaxContainerTerminationMessageLength, MaxPodTerminationMessageLogLength in pkg/kubelet/container/runtime.go of Kubernetes 1.36). It cuts
// messages that it has reported before, too, when containers are added.
const (
	maxMessage    = 4096
	maxOfPod      = 12 << 10
	laterParts    = 8 // containers that may be added before the last part of a request was read
	leastPart     = 16
	messageFormat = "b1"
	maxID         = 40
)

// Limit is how long a message may be in a pod whose spec has so many containers of all kinds, its own included, so that it is still whole
// after the rest of its request was sent.
func Limit(containers int) int {
	return min(maxMessage, maxOfPod/max(containers+laterParts, 1))
}

// ValidID reports whether id may be that of a request: it is a file's name, and a word of a message.
func ValidID(id string) bool {
	ok := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' }
	return id != "" && len(id) <= maxID && id[0] != '-' && strings.IndexFunc(id, func(r rune) bool { return !ok(r) }) < 0
}

// Part is a piece of a sealed request, as one message has it.
type Part struct {
	ID    string // of the request, for those who cannot open it
	Total int    // length of the whole text
	From  int    // where this piece begins in it
	Text  string
}

// Cut makes the message of at most limit bytes that begins with the character from. It fails if that would hold next to nothing.
func Cut(id, text string, from, limit int) (string, error) {
	if !ValidID(id) || from < 0 || from >= len(text) || len(text) > MaxRequestText {
		return "", fmt.Errorf("sending a request for containers: %w", ErrMalformed)
	}
	header := fmt.Sprintf("%s %s %d %d ", messageFormat, id, len(text), from)
	room := limit - len(header)
	if room < min(leastPart, len(text)-from) {
		return "", fmt.Errorf("sending a request for containers: a message of this pod may have %d bytes, which is too few", limit)
	}
	return header + text[from:min(len(text), from+room)], nil
}

// ParsePart is the reverse of Cut, also for a message that was cut once more.
func ParsePart(message string) (Part, error) {
	words := strings.Split(message, " ")
	if len(words) != 5 || words[0] != messageFormat || !ValidID(words[1]) {
		return Part{}, fmt.Errorf("reading a termination message: %w", ErrMalformed)
	}
	total, err := strconv.Atoi(words[2])
	if err != nil || total <= 0 || total > MaxRequestText {
		return Part{}, fmt.Errorf("reading a termination message: %w: bad length", ErrMalformed)
	}
	from, err := strconv.Atoi(words[3])
	if err != nil || from < 0 || from > total || len(words[4]) > total-from {
		return Part{}, fmt.Errorf("reading a termination message: %w: bad position", ErrMalformed)
	}
	return Part{ID: words[1], Total: total, From: from, Text: words[4]}, nil
}

// Join puts the parts of one request together, in any order. It returns what is there from the beginning without a gap, and whether that
// is all. The next part to ask for begins at the length of the text.
func Join(id string, total int, parts []Part) (text string, whole bool) {
	ordered := slices.Clone(parts)
	slices.SortStableFunc(ordered, func(a, b Part) int { return a.From - b.From })
	var b strings.Builder
	for _, p := range ordered {
		if p.ID != id || p.Total != total || p.From > b.Len() || p.From+len(p.Text) <= b.Len() {
			continue
		}
		b.WriteString(p.Text[b.Len()-p.From:])
	}
	return b.String(), b.Len() == total
}
