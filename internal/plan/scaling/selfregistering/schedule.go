package selfregistering

import (
	"fmt"
	"time"
)

// Frequency of a schedule that comes again. Empty: it comes once.
type Frequency string

// The frequencies.
const (
	Daily   Frequency = "Daily"
	Weekly  Frequency = "Weekly"
	Monthly Frequency = "Monthly"
	Yearly  Frequency = "Yearly"
)

// Schedule replaces the minimum from Start to End, once or again and again.
type Schedule struct {
	Name       string
	Start, End time.Time
	Repeat     Frequency
	// Until: it does not begin again at or after that moment; zero: it always does. A time that has begun comes to its end.
	Until time.Time
	// Zone in which days are counted. Problem says why there is none; such a schedule cannot be followed.
	Zone    *time.Location
	Problem string
	Min     int
}

// minimum is the number that the schedules and the spec ask for at least, the name of the schedule that says so, when that
// may change, and what keeps a schedule from being followed.
func (s Spec) minimum(now time.Time) (least int, name string, next time.Time, problem string) {
	least = s.Min
	for _, schedule := range s.Schedules {
		if schedule.Zone == nil {
			if problem == "" {
				problem = fmt.Sprintf("schedule %s is invalid: %s", schedule.Name, schedule.Problem)
			}
			continue
		}
		active, turn := schedule.at(now)
		next = earlier(next, turn)
		if active && name == "" { // the first one that is active counts
			least, name = schedule.Min, schedule.Name
		}
	}
	return least, name, next, problem
}

// earlier is the earlier of two moments, of which a zero one never comes.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// at reports whether the schedule is active, and when that changes; zero: never.
func (s Schedule) at(now time.Time) (active bool, turn time.Time) {
	if now.Before(s.Start) {
		return false, s.Start
	}
	limit := now
	if !s.Until.IsZero() && !limit.Before(s.Until) {
		limit = s.Until.Add(-1)
	}
	n := s.last(limit)
	// The time that began last also ends last, however long they are.
	if _, end := s.occurrence(n); now.Before(end) {
		return true, end
	}
	if s.Repeat == "" {
		return false, time.Time{}
	}
	next, _ := s.occurrence(n + 1)
	if !s.Until.IsZero() && !next.Before(s.Until) {
		return false, time.Time{}
	}
	return false, next
}

// last is the number, from 0, of the time that began last at or before a moment, or 0.
func (s Schedule) last(moment time.Time) int {
	if s.Repeat == "" {
		return 0
	}
	first, then := s.Start.In(s.Zone), moment.In(s.Zone)
	days := dayOf(then) - dayOf(first)
	months := 12*(then.Year()-first.Year()) + int(then.Month()-first.Month())
	n := map[Frequency]int{Daily: days, Weekly: days / 7, Monthly: months, Yearly: then.Year() - first.Year()}[s.Repeat]
	for n++; n > 0; n-- { // one more than the calendar says, because of hours that the clocks' change moves to another day
		if start, _ := s.occurrence(n); !start.After(moment) {
			return n
		}
	}
	return 0
}

// dayOf numbers the days of the calendar.
func dayOf(t time.Time) int {
	return int(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// occurrence is the n-th time, from 0, that the schedule is active. It begins and ends at the same times of day as the
// first one. A month that lacks the day has it on its last one: capacity that comes a day early does less harm than none.
// For the same reason a time of day that occurs twice, when the clocks go back, begins at its first and ends at its second.
func (s Schedule) occurrence(n int) (start, end time.Time) {
	if n == 0 {
		return s.Start, s.End
	}
	first, until := s.Start.In(s.Zone), s.End.In(s.Zone)
	year, month, day := first.Date()
	switch s.Repeat {
	case Daily:
		day += n
	case Weekly:
		day += 7 * n
	case Monthly, Yearly:
		if s.Repeat == Yearly {
			n *= 12
		}
		month += time.Month(n)
		day = min(day, time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day())
	}
	at := func(days int, clock time.Time) (first, last time.Time) {
		return onTheWall(time.Date(year, month, day+days, clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), time.UTC), s.Zone)
	}
	start, _ = at(0, first)
	_, end = at(dayOf(until)-dayOf(first), until)
	return start, end
}

// onTheWall is when clocks in the zone show what wall does in UTC: the first and the last time. Where they leave it out it is
// so much later, by as much as they are put forward.
func onTheWall(wall time.Time, zone *time.Location) (first, last time.Time) {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	first, last = guess, guess
	for _, near := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		_, offset := guess.Add(near).Zone()
		other := wall.Add(-time.Duration(offset) * time.Second)
		if _, really := other.In(zone).Zone(); really != offset {
			continue
		}
		if other.Before(first) {
			first = other
		}
		if other.After(last) {
			last = other
		}
	}
	return first, last
}
