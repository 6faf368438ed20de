package model

import "github.com/bullpen-ci/bullpen/internal/plan/lifecycle"

// leave is the product's lifecycle.Leave without its times, as bits, and whether the deletion itself is on its way. Every change of it but the
// last is the product's.
type leave uint8

const (
	leaveAsked leave = 1 << iota
	leaveGranted
	leaveLost
	leaveProof
	leaveSent // the fence was asked again, and the API server gets the deletion
)

// product is what the controller keeps.
func (l leave) product() lifecycle.Leave {
	p := lifecycle.Leave{Lost: l&leaveLost != 0}
	switch {
	case l&leaveGranted != 0:
		p.Removal = lifecycle.RemovalGranted
	case l&leaveAsked != 0:
		p.Removal = lifecycle.RemovalAsked
	}
	if l&leaveProof != 0 {
		p.Proof = proof
	}
	return p
}

// leaveOf is the product's, as bits. Without a removal nothing of it is read again, but for when the fence may be asked, and the model has
// no time.
func leaveOf(p lifecycle.Leave) leave {
	var l leave
	switch p.Removal {
	case lifecycle.RemovalNone:
		return 0
	case lifecycle.RemovalAsked:
		l = leaveAsked
	default:
		l = leaveGranted
	}
	if p.Lost {
		l |= leaveLost
	}
	if p.Proof != "" {
		l |= leaveProof
	}
	return l
}

const proof = "GitHub has no registration of it"

var pace = lifecycle.ServerPace()

func (d *decisions) asked(l leave, r lifecycle.Runner) leave {
	p := l.product()
	p.Ask(lifecycle.Action{Runner: r, Reason: lifecycle.ReasonScaleDown}, pace, noon)
	return leaveOf(p)
}

func (d *decisions) answered(l leave, a lifecycle.Answer) leave {
	p := l.product()
	d.rules.answered(&p, a, lifecycle.ReasonScaleDown, 0, pace, noon)
	return leaveOf(p)
}

func (d *decisions) vetoed(l leave) leave {
	p := l.product()
	p.Vetoed(pace, noon)
	return leaveOf(p)
}
