package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// section is one kind of thing that a pass goes through.
type section int

// The sections, in the order of a round. Jobs that no claim has come first: they need no pods.
const (
	strayJobs section = iota
	claimedPods
	unownedPods
	straySessions
	strayRegistrations
	sections
)

// place is where a pass stands: in a section, behind that UID or id.
type place struct {
	section section
	after   string
}

// page is a part of a section, in the order of UIDs or ids.
type page struct {
	subjects []*subject
	more     bool
}

// errNoPods: the list of pods says nothing, so nothing is made of it (RECV-4). It has been counted and logged.
var errNoPods = errors.New("no pods were listed")

// RECV-5: a round begins where the last one was cut off, or where it first had to stop asking or acting, and goes round: so
// every subject is eventually first, however slow or many those before it are.
func (p *pass) round(ctx context.Context, from place) error {
	var errs []error
	run := func(s section, after, until string) {
		if ctx.Err() != nil {
			p.stopped(place{s, after})
			return
		}
		if err := p.walk(ctx, s, after, until); err != nil && ctx.Err() == nil {
			errs = append(errs, err) // one section's trouble is none of the others'
		}
	}
	run(from.section, from.after, "")
	for i := section(1); i < sections; i++ {
		run((from.section+i)%sections, "", "")
	}
	if from.after != "" {
		run(from.section, "", from.after)
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// walk goes through a section from behind one UID or id up to another, or to its end.
func (p *pass) walk(ctx context.Context, s section, after, until string) error {
	for {
		got, err := p.page(ctx, s, after)
		if errors.Is(err, errNoPods) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				p.stopped(place{s, after})
			}
			return err
		}
		last := ""
		if n := len(got.subjects); n > 0 {
			last = got.subjects[n-1].key()
		}
		if until != "" { // UIDs and ids are in the same order here and in the database
			got.subjects = slices.DeleteFunc(got.subjects, func(one *subject) bool { return one.key() > until })
		}
		p.examine(ctx, got.subjects)
		p.note(place{s, after}, got.subjects)
		if !got.more || last == "" || until != "" && last >= until {
			return nil
		}
		after = last
		if ctx.Err() != nil {
			p.stopped(place{s, after})
			return ctx.Err()
		}
	}
}

// note keeps where the first of the subjects stands that was not checked, or that the pass had no questions or actions left for.
func (p *pass) note(at place, subjects []*subject) {
	for _, s := range subjects {
		switch {
		case !s.begun:
			p.stopped(at)
			return
		case (s.unasked || s.capped) && p.passedOver == nil:
			was := at
			p.passedOver = &was
		}
		at.after = s.key()
	}
}

// stopped keeps where the pass was cut off.
func (p *pass) stopped(at place) {
	if p.cut == nil {
		p.cut = &at
	}
}

// next is where the next pass begins.
func (p *pass) next() place {
	switch {
	case p.cut != nil:
		return *p.cut
	case p.passedOver != nil:
		return *p.passedOver
	default:
		return place{}
	}
}

// startAt is a place somewhere in the round, of a replica that has not made one yet: where each is killed before it has come
// far, all of them together come everywhere.
func startAt(fraction float64) place {
	at := fraction * float64(sections)
	s := min(section(at), sections-1)
	if s == strayJobs {
		return place{}
	}
	return place{s, fmt.Sprintf("%08x", uint32((at-float64(s))*(1<<32-1)))} //nolint:gosec // less than 1<<32
}

// jobKey puts ids into the order of their numbers.
func jobKey(id int64) string { return fmt.Sprintf("%019d", id) }

func jobOfKey(key string) int64 {
	id, _ := strconv.ParseInt(key, 10, 64) // empty: before the first
	return id
}

// page reads a part of a section.
func (p *pass) page(ctx context.Context, s section, after string) (page, error) {
	if s == strayJobs {
		return p.jobs(ctx, after)
	}
	pods, err := p.pods(ctx)
	if err != nil {
		return page{}, err
	}
	switch s {
	case claimedPods:
		return p.claims(ctx, pods, after)
	case unownedPods:
		return p.unclaimed(ctx, pods, after)
	case straySessions:
		return p.sessions(ctx, pods, after)
	default:
		return p.registrations(ctx, pods, after)
	}
}
