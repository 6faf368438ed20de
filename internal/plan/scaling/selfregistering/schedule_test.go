package selfregistering

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func zone(t require.TestingT, name string) *time.Location {
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func when(t require.TestingT, text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

// 6.9: the boundaries of schedules. Each look is a moment, whether the schedule is active then, and when that changes ("" for never).
func TestSchedule_69_Boundaries(t *testing.T) {
	type look struct {
		at     string
		active bool
		turn   string
	}
	for _, c := range []struct {
		name, start, end string
		repeat           Frequency
		until, zone      string
		looks            []look
	}{
		{"once", "2026-03-01T08:00:00Z", "2026-03-01T18:00:00Z", "", "", "UTC", []look{
			{"2026-03-01T07:59:59Z", false, "2026-03-01T08:00:00Z"},
			{"2026-03-01T08:00:00Z", true, "2026-03-01T18:00:00Z"},
			{"2026-03-01T17:59:59Z", true, "2026-03-01T18:00:00Z"},
			{"2026-03-01T18:00:00Z", false, ""},
			{"2027-03-01T09:00:00Z", false, ""},
		}},
		{"daily over midnight", "2026-03-01T22:00:00Z", "2026-03-02T06:00:00Z", Daily, "", "UTC", []look{
			{"2026-03-05T21:59:59Z", false, "2026-03-05T22:00:00Z"},
			{"2026-03-05T22:00:00Z", true, "2026-03-06T06:00:00Z"},
			{"2026-03-06T05:59:59Z", true, "2026-03-06T06:00:00Z"},
			{"2026-03-06T06:00:00Z", false, "2026-03-06T22:00:00Z"},
		}},
		{"daily until", "2026-03-01T22:00:00Z", "2026-03-02T06:00:00Z", Daily, "2026-03-03T22:00:00Z", "UTC", []look{
			{"2026-03-03T05:00:00Z", true, "2026-03-03T06:00:00Z"}, // began before the end date
			{"2026-03-03T07:00:00Z", false, ""},
			{"2026-03-03T23:00:00Z", false, ""},
			{"2026-03-20T23:00:00Z", false, ""},
		}},
		{"a time that has begun comes to its end", "2026-03-01T22:00:00Z", "2026-03-02T06:00:00Z", Daily, "2026-03-03T23:00:00Z", "UTC", []look{
			{"2026-03-04T05:00:00Z", true, "2026-03-04T06:00:00Z"},
			{"2026-03-04T06:00:00Z", false, ""},
		}},
		{"daily by the clock on the wall, clocks go forward", "2026-03-27T08:00:00+01:00", "2026-03-27T18:00:00+01:00", Daily, "", "Europe/Berlin", []look{
			{"2026-03-28T07:00:00Z", true, "2026-03-28T17:00:00Z"},
			{"2026-03-29T05:59:59Z", false, "2026-03-29T06:00:00Z"},
			{"2026-03-29T06:00:00Z", true, "2026-03-29T16:00:00Z"},
			{"2026-03-29T16:00:00Z", false, "2026-03-30T06:00:00Z"},
		}},
		{"the same in UTC does not move", "2026-03-27T07:00:00Z", "2026-03-27T17:00:00Z", Daily, "", "UTC", []look{
			{"2026-03-29T06:30:00Z", false, "2026-03-29T07:00:00Z"},
		}},
		{"in the hour that is left out", "2026-03-28T02:30:00+01:00", "2026-03-28T02:45:00+01:00", Daily, "", "Europe/Berlin", []look{
			{"2026-03-29T00:00:00Z", false, "2026-03-29T01:30:00Z"},
			{"2026-03-29T01:30:00Z", true, "2026-03-29T01:45:00Z"}, // 03:30 on the wall
			{"2026-03-29T01:45:00Z", false, "2026-03-30T00:30:00Z"},
		}},
		{"in the hour that comes twice", "2026-10-24T02:30:00+02:00", "2026-10-24T03:30:00+02:00", Daily, "", "Europe/Berlin", []look{
			{"2026-10-25T00:29:59Z", false, "2026-10-25T00:30:00Z"},
			{"2026-10-25T00:30:00Z", true, "2026-10-25T02:30:00Z"}, // from its first to the end of its second
			{"2026-10-25T02:30:00Z", false, "2026-10-26T01:30:00Z"},
		}},
		{"weekly", "2026-03-06T18:00:00Z", "2026-03-09T06:00:00Z", Weekly, "", "UTC", []look{ // Friday to Monday
			{"2026-03-12T12:00:00Z", false, "2026-03-13T18:00:00Z"},
			{"2026-03-13T17:59:59Z", false, "2026-03-13T18:00:00Z"},
			{"2026-03-15T12:00:00Z", true, "2026-03-16T06:00:00Z"},
			{"2026-03-16T06:00:00Z", false, "2026-03-20T18:00:00Z"},
		}},
		{"monthly on the 31st", "2026-01-31T08:00:00Z", "2026-01-31T20:00:00Z", Monthly, "", "UTC", []look{
			{"2026-02-28T08:00:00Z", true, "2026-02-28T20:00:00Z"},
			{"2026-02-28T20:00:00Z", false, "2026-03-31T08:00:00Z"}, // and not on the 28th for good
			{"2026-03-31T08:00:00Z", true, "2026-03-31T20:00:00Z"},
			{"2026-04-30T07:59:59Z", false, "2026-04-30T08:00:00Z"},
			{"2028-02-28T12:00:00Z", false, "2028-02-29T08:00:00Z"},
		}},
		{"monthly on the 15th", "2026-01-15T08:00:00Z", "2026-01-15T20:00:00Z", Monthly, "", "UTC", []look{
			{"2026-02-15T07:00:00Z", false, "2026-02-15T08:00:00Z"},
			{"2026-02-28T08:00:00Z", false, "2026-03-15T08:00:00Z"},
		}},
		{"monthly over the turn of the month", "2026-01-31T22:00:00Z", "2026-02-01T02:00:00Z", Monthly, "", "UTC", []look{
			{"2026-03-01T01:00:00Z", true, "2026-03-01T02:00:00Z"},
			{"2026-03-01T02:00:00Z", false, "2026-03-31T22:00:00Z"},
		}},
		{"yearly on February 29", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z", Yearly, "", "UTC", []look{
			{"2029-02-27T12:00:00Z", false, "2029-02-28T00:00:00Z"},
			{"2029-02-28T12:00:00Z", true, "2029-03-01T00:00:00Z"},
			{"2032-02-28T12:00:00Z", false, "2032-02-29T00:00:00Z"},
			{"2032-02-29T12:00:00Z", true, "2032-03-01T00:00:00Z"},
		}},
		{"longer than its period", "2026-03-01T00:00:00Z", "2026-03-04T12:00:00Z", Daily, "2026-03-10T00:00:00Z", "UTC", []look{
			{"2026-03-08T13:00:00Z", true, "2026-03-11T12:00:00Z"},
			{"2026-03-12T13:00:00Z", false, ""},
			{"2026-03-12T11:59:59Z", true, "2026-03-12T12:00:00Z"},
		}},
		{"half an hour off, and over the date line", "2026-03-01T00:30:00+13:45", "2026-03-01T01:30:00+13:45", Daily, "", "Pacific/Chatham", []look{
			{"2026-06-01T11:44:59Z", false, "2026-06-01T11:45:00Z"},
			{"2026-06-01T11:45:00Z", true, "2026-06-01T12:45:00Z"},
		}},
	} {
		s := Schedule{Name: "s", Start: when(t, c.start), End: when(t, c.end), Repeat: c.repeat, Zone: zone(t, c.zone)}
		if c.until != "" {
			s.Until = when(t, c.until)
		}
		for _, l := range c.looks {
			active, turn := s.at(when(t, l.at))
			require.Equal(t, l.active, active, "%s at %s", c.name, l.at)
			got := ""
			if !turn.IsZero() {
				got = turn.UTC().Format(time.RFC3339)
			}
			require.Equal(t, l.turn, got, "%s at %s", c.name, l.at)
		}
	}
}

// A schedule changes when it says so, wherever the clocks change, and it is active exactly in its times.
func TestSchedule_69_Property_TurnsWhenItSays(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Kathmandu"}
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 3*365*24*60).Draw(t, "start")) * time.Minute)
		s := Schedule{
			Name: "s", Start: start, End: start.Add(time.Duration(rapid.IntRange(1, 40*24*60).Draw(t, "long")) * time.Minute),
			Repeat: rapid.SampledFrom([]Frequency{"", Daily, Weekly, Monthly, Yearly}).Draw(t, "repeat"),
			Zone:   zone(t, rapid.SampledFrom(zones).Draw(t, "zone")),
		}
		if rapid.Bool().Draw(t, "ends") {
			s.Until = start.Add(time.Duration(rapid.IntRange(1, 3*365*24).Draw(t, "until")) * time.Hour)
		}
		now := start.Add(time.Duration(rapid.IntRange(-48*60, 4*365*24*60).Draw(t, "now")) * time.Minute)
		active, turn := s.at(now)
		inside := false
		for n := range 1500 { // the whole of it, by hand
			from, to := s.occurrence(n)
			if from.After(now) || n > 0 && (s.Repeat == "" || !s.Until.IsZero() && !from.Before(s.Until)) {
				break
			}
			inside = inside || now.Before(to)
		}
		require.Equal(t, inside, active)
		if turn.IsZero() {
			require.False(t, active, "it ends some day")
			return
		}
		require.True(t, turn.After(now))
		before, same := s.at(turn.Add(-1))
		require.Equal(t, active, before, "nothing changes before")
		if !active {
			require.True(t, same.Equal(turn))
			after, _ := s.at(turn)
			require.True(t, after)
		}
	})
}
