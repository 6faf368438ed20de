package tart

import (
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Reasons of an exit.
const (
	reasonUnknown   = "ContainerStatusUnknown"
	reasonRunFailed = "TartRunFailed"
	reasonSilent    = "GuestSilent"
	reasonShare     = "StatusShareExceeded"
)

// evidence is all that is known of the end of a virtual machine.
type evidence struct {
	// Report is the guest's own report; nil when there is none that can be trusted.
	Report *guestshare.Report
	// Killed: the machine was ended on request, before the guest had reported.
	Killed bool
	// GaveUp is why this agent ended it by itself: empty, or a reason.
	GaveUp, GaveUpMessage string
	// Run is how `tart run` ended; LastWords what it wrote last.
	Run       sandbox.Exit
	LastWords string
	StartedAt time.Time
}

// attribute says how the runner ended. NODE-4: the guest's report, else Tart's code if that is a failure, else unknown, which is not success. `tart run`
// exits with 0 when the guest stops and also when it crashes, so its 0 tells nothing.
func attribute(e evidence) sandbox.Exit {
	exit := sandbox.Exit{StartedAt: e.StartedAt, FinishedAt: e.Run.FinishedAt}
	if exit.FinishedAt.Before(exit.StartedAt) {
		exit.FinishedAt = exit.StartedAt
	}
	unknown := func(reason, message string) sandbox.Exit {
		exit.Code, exit.Unknown, exit.Reason, exit.Message = sandbox.UnknownExitCode, true, reason, message
		return exit
	}
	switch {
	case e.Report != nil:
		exit.Code, exit.Signal, exit.Reason, exit.Message = e.Report.Code, e.Report.Signal, guestReason(e.Report.Reason), e.Report.Message
		// The guest's clock may say anything; the machine has run between these two.
		exit.StartedAt = within(e.Report.StartedAt, exit.StartedAt, exit.FinishedAt)
		exit.FinishedAt = within(e.Report.FinishedAt, exit.StartedAt, exit.FinishedAt)
	case e.Killed:
		exit.Signal, exit.Code = 9, 128+9
	case e.GaveUp != "":
		return unknown(e.GaveUp, e.GaveUpMessage)
	case e.Run.Unknown:
		return unknown(reasonUnknown, "the virtual machine's exit was not observed, and its guest has not reported")
	case e.Run.Code != 0:
		exit.Code, exit.Signal, exit.Reason = e.Run.Code, e.Run.Signal, reasonRunFailed
		exit.Message = fmt.Sprintf("tart run exited with code %d, and the guest has not reported: %s", e.Run.Code, e.LastWords)
	default:
		return unknown(reasonUnknown, "the virtual machine exited, and its guest has not reported: "+e.LastWords)
	}
	return exit
}

// guestReason lets through what the guest's agent may say: a customer's job could write any other word, and reasons are read by machines.
func guestReason(reason string) string {
	if reason == guestshare.ReasonStartError {
		return reason
	}
	return ""
}

// within clamps a time.
func within(t, first, last time.Time) time.Time {
	switch {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
}
