package jobcontainers

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Bounds of one pod (JOB-5). The spec of a pod only grows, and a job can ask as often as it likes.
const (
	maxCouriers = 150
	maxParts    = 9 // of one request; letter.Limit leaves room for them
	maxRevivals = 5 // of couriers that exited without a request, or did not start
)

const (
	// revivalDelay is how long a courier that carried nothing is left alone: it exits with its runner, which is reported a moment later.
	revivalDelay = 5 * time.Second
	// retryPatience is how long a kubelet may retry to create a container before that is reported as final. It retries after about 10 s.
	retryPatience = 30 * time.Second
	// pullPatience is the same for pulls, which it retries after 10, 20, 40 and 80 s. It reports nothing while it pulls again: an image that takes
	// minutes must not be given up because of one failure before.
	pullPatience = 3 * time.Minute
	// startPatience is how long a container may be with the container runtime without having started. A runtime that is restarted while it starts
	// one leaves it like that, and a kubelet never starts a container of this kind again.
	startPatience = 10 * time.Second
	longestText   = 400
)

// action is what is done for a pod.
type action int

const (
	wait    action = iota
	answer         // a request is complete: text is it
	proceed        // a part of a request is missing: rest is it
	revive         // the courier exited without a request, or does not start
	refuse         // a request is answered with a sentence
	closed         // no further request is read: sentence says why
)

// decision is what a pod needs now.
type decision struct {
	action   action
	id       string // of the request
	text     string // sealed
	rest     ephemeral.Rest
	sentence string
	asked    time.Time // when the request left the pod
	failures []letter.Failure
	again    time.Duration // when to look again without an event; 0: not
}

// over reports whether nothing can be added any more: a kubelet starts no container in a pod that is being deleted, or whose runner has
// exited.
func over(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return true
	}
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == runnerpod.ContainerRunner {
			return s.State.Running == nil
		}
	}
	return true
}

// decide reads a pod. What was answered is never decided again: the courier that brought it is the newest then (JOB-4).
func decide(pod *corev1.Pod, v ephemeral.View, now time.Time) decision {
	if over(pod) {
		return decision{}
	}
	d := decision{}
	d.failures, d.again = news(v, now)
	newest := v.Newest()
	ended := newest.State.Terminated
	if newest.Unstarted {
		return d.replacing(v, now)
	}
	if ended == nil || newest.Delivery().Closed != "" {
		return d
	}
	d.asked = ended.FinishedAt.Time
	id, total, parts, ok := v.Parts()
	switch {
	case len(v.Couriers) >= maxCouriers: // JOB-5
		d.action, d.sentence = closed, fmt.Sprintf("This job has asked for containers %d times, which is the most that is allowed.", len(v.Couriers))
		return d
	case !ok:
		return d.reviving(v, now)
	}
	text, whole := letter.Join(id, total, parts)
	switch {
	case whole:
		d.action, d.id, d.text = answer, id, text
	case len(parts) >= maxParts:
		d.action, d.id = refuse, id
		d.sentence = fmt.Sprintf("This request for containers is too long: only %d of its %d characters could be sent. Use fewer services, or shorter credentials.", len(text), total)
	default:
		d.action, d.id, d.rest = proceed, id, ephemeral.Rest{Request: id, From: len(text)}
	}
	return d
}

// reviving replaces a courier that carried nothing, unless it exited with its runner.
func (d decision) reviving(v ephemeral.View, now time.Time) decision {
	if left := revivalDelay - now.Sub(d.asked); left > 0 {
		d.again = sooner(d.again, left)
		return d
	}
	d.revive(v)
	return d
}

// replacing replaces a courier that the container runtime has, and does not start.
func (d decision) replacing(v ephemeral.View, now time.Time) decision {
	if left := unsettled(v, now); left > 0 {
		d.again = sooner(d.again, left)
		return d
	}
	d.revive(v)
	return d
}

// unsettled is for how long a container that has not started may still do so; 0: it never will.
func unsettled(v ephemeral.View, now time.Time) time.Duration {
	if v.Reported.IsZero() {
		return startPatience
	}
	return max(0, startPatience-now.Sub(v.Reported))
}

// revive decides for another courier, and for one that closes the volume when too many have failed.
func (d *decision) revive(v ephemeral.View) {
	failed := 0
	for _, c := range v.Couriers {
		if c.Unstarted {
			failed++
		} else if t := c.State.Terminated; t != nil {
			if _, err := letter.ParsePart(t.Message); err != nil {
				failed++
			}
		}
	}
	switch {
	case failed <= maxRevivals:
		d.action = revive
	case v.Newest().Delivery().Closed == "":
		d.action = closed
		d.sentence = fmt.Sprintf("Containers cannot be added to this pod: what asks for them has failed %d times.", failed)
	}
}

// news are the failures that the job does not know of, each container at most twice: once while the kubelet retries, and once for good.
func news(v ephemeral.View, now time.Time) (failures []letter.Failure, again time.Duration) {
	left := unsettled(v, now)
	if left > 0 && slices.ContainsFunc(v.Notices, func(n ephemeral.Notice) bool { return n.Unstarted }) {
		again = left
	}
	for _, c := range v.Containers {
		failure, failed := failureOf(c)
		if !failed && c.Unstarted {
			if left > 0 {
				again = sooner(again, left)
				continue
			}
			failure, failed = unstarted(c, ""), true
		}
		if !failed {
			continue
		}
		told, arrived, known := v.Noticed(c.Name, left == 0)
		switch {
		case !known, failure.Final && !told.Final:
			failures = append(failures, failure)
		case told.Final || arrived.IsZero():
		case now.Sub(arrived) >= patienceFor(c, failure, told):
			failure.Final = true
			failures = append(failures, failure)
		default:
			again = sooner(again, patienceFor(c, failure, told)-now.Sub(arrived))
		}
	}
	return failures, again
}

// patienceFor is how long the kubelet may retry what has failed, from the time at which the job's log had it. A failure with another text is newer:
// of a creation after pulls that have failed, for example.
func patienceFor(c ephemeral.Container, failure, told letter.Failure) time.Duration {
	if w := c.State.Waiting; w != nil && slices.Contains(pullReasons, w.Reason) || failure.Text != told.Text {
		return pullPatience
	}
	return retryPatience
}

// pullReasons are those of failed pulls that the kubelet retries.
var pullReasons = []string{"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ErrImageInspect"}

// failureOf says why a container does not run. Its text goes to the job's log, and has one line.
func failureOf(c ephemeral.Container) (letter.Failure, bool) {
	f := letter.Failure{Container: c.Name}
	if w := c.State.Waiting; w != nil {
		if slices.Contains(pullReasons, w.Reason) {
			f.Text = fmt.Sprintf("Image '%s' could not be pulled: %s", c.Image, oneLine(w.Message, w.Reason))
			return f, true
		}
		switch w.Reason {
		case "ErrImageNeverPull", "InvalidImageName", "SignatureValidationFailed":
			f.Text, f.Final = fmt.Sprintf("Image '%s' could not be pulled: %s", c.Image, oneLine(w.Message, w.Reason)), true
		case "CreateContainerConfigError", "CreateContainerError": // also when the container runtime has just been restarted
			f.Text = fmt.Sprintf("A container of image '%s' could not be started: %s", c.Image, oneLine(w.Message, w.Reason))
		case "RunContainerError": // the start was interrupted, and a container of this kind is not started again
			return unstarted(c, " ("+oneLine(w.Message, w.Reason)+")"), true
		default:
			return f, false
		}
		return f, true
	}
	t := c.State.Terminated
	if t == nil || t.ExitCode == 0 || t.ExitCode == jobcontainer.ExitRunnerEnded {
		return f, false // asked to end, or with the runner, whose end is not known yet
	}
	f.Final = true
	switch t.Reason {
	case "OOMKilled":
		f.OutOfMemory = true
		f.Text = fmt.Sprintf("The container of image '%s' was killed: the job used more memory than its pool allows.", c.Image)
	case "StartError", "ContainerCannotRun": // also of a start that the kubelet's end has cancelled
		f.Retriable = true
		f.Text = fmt.Sprintf("A container of image '%s' could not be started: %s", c.Image, oneLine(t.Message, t.Reason))
	default:
		f.Text = fmt.Sprintf("The container of image '%s' exited with code %d (%s).", c.Image, t.ExitCode, oneLine("", t.Reason))
	}
	return f, true
}

// unstarted says that a container was created, and will not start.
func unstarted(c ephemeral.Container, why string) letter.Failure {
	return letter.Failure{Container: c.Name, Final: true, Retriable: true, Text: fmt.Sprintf(
		"A container of image '%s' could not be started, because its node was interrupted while it started it%s.", c.Image, why)}
}

// oneLine makes a message of the kubelet, which repeats what a registry says, printable.
func oneLine(message, reason string) string {
	if message = strings.TrimSpace(message); message == "" {
		message = reason
	}
	message = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, message)), " ")
	if len(message) > longestText {
		message = strings.ToValidUTF8(message[:longestText], "") + "…"
	}
	return message
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}
