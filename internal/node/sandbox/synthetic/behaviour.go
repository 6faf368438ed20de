package synthetic

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// AnnotationPrefix begins the annotations that steer a pod; see the package's documentation.
const AnnotationPrefix = "synthetic.bullpen.dev/"

// AnnotationPrepare says how long Prepare takes.
const AnnotationPrepare = AnnotationPrefix + "prepare"

const never = time.Duration(-1)

// behaviour is what a container does.
type behaviour struct {
	exit            int32
	after           time.Duration // never: until stopped
	ignoreTerminate bool
	exec            int
	start           time.Duration // how long Start takes
	ready           time.Duration // Exec fails until the container has run for so long
	unready         time.Duration // and from here on; never: no more
	log             string        // what it writes at once
}

// answer is what Exec returns once the container has run for so long.
func (b behaviour) answer(age time.Duration) int {
	if b.exec == 0 && (age < b.ready || b.unready != never && age >= b.unready) {
		return 1
	}
	return b.exec
}

// parseBehaviour reads an annotation; the empty one runs until stopped and exits 0.
func parseBehaviour(text string) (behaviour, error) {
	b := behaviour{after: never, unready: never}
	for item := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		var err error
		switch key {
		case "":
		case "exit":
			var code int64
			code, err = strconv.ParseInt(value, 10, 32)
			if err == nil && (code < 0 || code > 255) {
				err = fmt.Errorf("%d is not between 0 and 255", code)
			}
			b.exit = int32(code)
		case "after":
			b.after, err = span(value)
		case "start":
			b.start, err = span(value)
		case "ready":
			b.ready, err = span(value)
		case "unready":
			b.unready, err = span(value)
		case "ignore-terminate":
			b.ignoreTerminate = true
		case "log":
			b.log = value + "\n"
		case "exec":
			b.exec, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("use exit=, after=, start=, ready=, unready=, exec=, log= or ignore-terminate")
		}
		if err != nil {
			return b, fmt.Errorf("synthetic behaviour %q: %w", item, err)
		}
	}
	return b, nil
}

func span(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%s is negative", text)
	}
	return d, err
}

func behaviourOf(pod *corev1.Pod, container string) (behaviour, error) {
	b, err := parseBehaviour(pod.Annotations[AnnotationPrefix+container])
	if err != nil {
		return b, &sandbox.InvalidError{Reason: sandbox.ReasonConfigError, Message: fmt.Sprintf("container %q: %v", container, err)}
	}
	return b, nil
}

// prepareTime reads the annotation of the same name.
func prepareTime(pod *corev1.Pod) (time.Duration, error) {
	text := pod.Annotations[AnnotationPrepare]
	switch text {
	case "":
		return 0, nil
	case "never":
		return never, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, &sandbox.InvalidError{Reason: sandbox.ReasonConfigError, Message: fmt.Sprintf("%s is %q: give a duration such as 2s, or never", AnnotationPrepare, text)}
	}
	return d, nil
}
