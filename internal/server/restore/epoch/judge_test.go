package epoch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	noon   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	bounds = Bounds{Hold: time.Minute, Patience: 5 * time.Minute}
)

func mark(epoch int64) Mark { return Mark{"a", epoch} }

func row(epoch int64) Row {
	return Row{Mark: mark(epoch), Now: noon, BeatenAt: noon.Add(-time.Hour), Copied: true}
}

func frozen(r Row, over Mark, left time.Duration) Row {
	r.Over, r.HoldUntil, r.Reason = over, noon.Add(left), "because"
	return r
}

func rebuilt(r Row, before time.Duration, doubts int) Row {
	r.RebuiltAt, r.Doubts = noon.Add(-before), doubts
	return r
}

func TestJudge_CLAIM17_Cases(t *testing.T) {
	gone, unread := Copy{Missing: true}, Copy{Unreadable: true}
	fresh := row(1)
	fresh.Copied = false
	other := Mark{"b", 3}
	cases := map[string]struct {
		v    View
		step Step
		over Mark
	}{
		"as it should be":                            {View{mark(7), Copy{Mark: mark(6)}, row(7), false, 0}, Run, Mark{}},
		"started":                                    {View{Mark{}, Copy{Mark: mark(6)}, row(7), false, 0}, Run, Mark{}},
		"restored while it was stopped":              {View{Mark{}, Copy{Mark: mark(9)}, row(7), false, 0}, Begin, mark(9)},
		"restored while it runs":                     {View{mark(9), Copy{Mark: mark(8)}, row(7), false, 0}, Begin, mark(9)},
		"restored, copy unreadable":                  {View{mark(9), unread, row(7), false, 0}, Begin, mark(9)},
		"restored, copy deleted":                     {View{mark(9), gone, row(7), false, 0}, Begin, mark(9)},
		"the copy is newer than what it knows":       {View{mark(7), Copy{Mark: mark(9)}, row(8), false, 0}, Begin, mark(9)},
		"a new database":                             {View{Mark{}, Copy{Mark: other}, fresh, false, 0}, Begin, other},
		"a new database, higher":                     {View{mark(7), Copy{Mark: other}, row(7), false, 0}, Begin, other},
		"first installation":                         {View{Mark{}, gone, fresh, false, 0}, Run, Mark{}},
		"first installation, but pods work":          {View{Mark{}, gone, fresh, true, 0}, Begin, mark(1)},
		"started, copy deleted":                      {View{Mark{}, gone, row(7), false, 0}, Begin, mark(7)},
		"runs, copy deleted":                         {View{mark(7), gone, row(7), false, 0}, Run, Mark{}},
		"started, copy unreadable":                   {View{Mark{}, unread, row(7), false, 0}, Wait, Mark{}},
		"started, copy unreadable for long":          {View{Mark{}, unread, row(7), false, 5 * time.Minute}, Begin, mark(7)},
		"runs, copy unreadable":                      {View{mark(7), unread, row(7), false, time.Hour}, Run, Mark{}},
		"held":                                       {View{mark(9), Copy{Mark: mark(9)}, frozen(row(7), mark(9), time.Second), false, 0}, Hold, Mark{}},
		"held, started anew":                         {View{Mark{}, Copy{Mark: mark(9)}, frozen(row(7), mark(9), time.Second), false, 0}, Hold, Mark{}},
		"held, started anew, copy unreadable":        {View{Mark{}, unread, frozen(row(7), mark(9), time.Second), false, 0}, Hold, Mark{}},
		"held, rebuilt, not over":                    {View{mark(9), Copy{Mark: mark(9)}, rebuilt(frozen(row(7), mark(9), time.Second), 0, 0), false, 0}, Hold, Mark{}},
		"held, over, never rebuilt":                  {View{mark(9), Copy{Mark: mark(9)}, frozen(row(7), mark(9), -time.Hour), false, 0}, Hold, Mark{}},
		"held, over, rebuilt early":                  {View{mark(9), Copy{Mark: mark(9)}, rebuilt(frozen(row(7), mark(9), 0), 40*time.Second, 0), false, 0}, Hold, Mark{}},
		"held, over, rebuilt":                        {View{mark(9), Copy{Mark: mark(9)}, rebuilt(frozen(row(7), mark(9), 0), 20*time.Second, 0), false, 0}, End, Mark{}},
		"held, until later than a hold lasts":        {View{mark(9), Copy{Mark: mark(9)}, frozen(row(7), mark(9), time.Hour), false, 0}, Begin, mark(9)},
		"held since this transaction began":          {View{mark(9), Copy{Mark: mark(9)}, frozen(row(7), mark(9), bounds.Hold+time.Second), false, 0}, Hold, Mark{}},
		"held, over, rebuilt later than now":         {View{mark(9), Copy{Mark: mark(9)}, rebuilt(frozen(row(7), mark(9), 0), -time.Hour, 0), false, 0}, Hold, Mark{}},
		"held, over, doubts":                         {View{mark(9), Copy{Mark: mark(9)}, rebuilt(frozen(row(7), mark(9), -time.Minute), 0, 1), false, 0}, Hold, Mark{}},
		"held, over, doubts for long":                {View{mark(9), Copy{Mark: mark(9)}, rebuilt(frozen(row(7), mark(9), -5*time.Minute), 0, 1), false, 0}, End, Mark{}},
		"held, and others go on with the former one": {View{mark(9), Copy{Mark: mark(10)}, rebuilt(frozen(row(7), mark(9), 0), 0, 0), false, 0}, Begin, mark(10)},
		"a hold that was restored":                   {View{mark(9), Copy{Mark: mark(9)}, rebuilt(frozen(row(7), mark(5), -time.Hour), 0, 0), false, 0}, Begin, mark(9)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := Judge(c.v, bounds)
			require.Equal(t, c.step.String(), d.Step.String(), d.Reason)
			require.Equal(t, c.over, d.Over)
			require.Equal(t, c.step != Run, d.Reason != "" || c.step == End)
		})
	}
}

// CLAIM-17: whatever is seen, no replica runs on a database that is behind what is known, or held; and what is known never
// falls behind but by another lineage in the copy.
func TestJudge_CLAIM17_NoReplicaRunsBehindWhatIsKnown(t *testing.T) {
	marks := rapid.Custom(func(t *rapid.T) Mark {
		lineage := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "lineage")
		if lineage == "" {
			return Mark{}
		}
		return Mark{lineage, rapid.Int64Range(1, 4).Draw(t, "epoch")}
	})
	rapid.Check(t, func(t *rapid.T) {
		v := View{Known: marks.Draw(t, "known"), Unexplained: rapid.Bool().Draw(t, "unexplained")}
		v.Copy.Mark = marks.Draw(t, "copy")
		v.Copy.Missing = v.Copy.Mark == Mark{}
		if !v.Copy.Missing && rapid.Bool().Draw(t, "unreadable") {
			v.Copy = Copy{Unreadable: true}
		}
		v.UnreadableFor = time.Duration(rapid.Int64Range(0, 10).Draw(t, "minutes")) * time.Minute
		v.Row = Row{Mark: Mark{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "row"), rapid.Int64Range(1, 4).Draw(t, "row's")}, Now: noon}
		v.Row.Copied = rapid.Bool().Draw(t, "copied")
		if rapid.Bool().Draw(t, "held") {
			v.Row = frozen(v.Row, marks.Draw(t, "over"), time.Duration(rapid.Int64Range(-6, 1).Draw(t, "left"))*time.Minute)
			if rapid.Bool().Draw(t, "rebuilt") {
				v.Row = rebuilt(v.Row, 0, rapid.IntRange(0, 1).Draw(t, "doubts"))
			}
		}
		d := Judge(v, bounds)
		known := v.knows()
		switch d.Step {
		case Run:
			if v.Row.behind(known) || !v.Row.HoldUntil.IsZero() || v.Row.behind(d.Known) || d.Known.behind(known) {
				t.Fatalf("runs: %+v", v)
			}
		case End:
			if v.Row.Over.behind(known) || v.Row.RebuiltAt.IsZero() || v.Row.Now.Before(v.Row.HoldUntil) {
				t.Fatalf("ends: %+v", v)
			}
		case Begin:
			if (known != Mark{}) && d.Over != known {
				t.Fatalf("begins over %s: %+v", d.Over, v)
			}
		}
	})
}
