package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Options of Make.
type Options struct {
	// Seed decides everything.
	Seed uint64 `json:"seed"`
	// Round is which part of a long soak this is; rounds of one seed differ.
	Round int `json:"round"`
	// Jobs and Faults are how many there are in this round.
	Jobs   int `json:"jobs"`
	Faults int `json:"faults"`
	// Length is over how long they are spread.
	Length Duration `json:"length"`
	// Without are kinds, and faults of GitHub's, that are left out.
	Without []string `json:"without,omitempty"`
}

// Duration is a time.Duration that JSON writes as "1.5s".
type Duration time.Duration

// MarshalText writes the duration as time.ParseDuration reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration: write it like 1.5s", text)
	}
	*d = Duration(parsed)
	return nil
}

// Step is one fault, or one change of an administrator's.
type Step struct {
	Number int      `json:"n"`
	At     Duration `json:"at"` // since the round began
	Kind   string   `json:"kind"`
	Target string   `json:"target"`
	For    Duration `json:"for,omitempty"`
	// Of GitHub's faults: which, and how often and on what it strikes.
	Fault   string   `json:"fault,omitempty"`
	Percent int      `json:"percent,omitempty"`
	Status  int      `json:"status,omitempty"`
	Route   string   `json:"route,omitempty"`
	Account int      `json:"account,omitempty"` // 0: all
	Delay   Duration `json:"delay,omitempty"`
	// Value is a number that the kind asks for; Choice picks one of what there is at that moment.
	Value  int    `json:"value,omitempty"`
	Choice uint32 `json:"choice,omitempty"`
}

// String is the step in a line.
func (s Step) String() string {
	text := fmt.Sprintf("#%d at %s: %s of %s", s.Number, time.Duration(s.At), s.Kind, s.Target)
	if s.Fault != "" {
		text += " " + s.Fault
		if s.Status != 0 {
			text += fmt.Sprintf(" %d", s.Status)
		}
		if s.Route != "" {
			text += " on " + s.Route
		}
		if s.Percent > 0 && s.Percent < 100 {
			text += fmt.Sprintf(" (%d %%)", s.Percent)
		}
	}
	if s.For > 0 {
		text += fmt.Sprintf(" for %s", time.Duration(s.For))
	}
	return text
}

// Batch is jobs that are queued together.
type Batch struct {
	At      Duration `json:"at"`
	Account int      `json:"account"`
	Pool    string   `json:"pool"`
	Jobs    int      `json:"jobs"`
	Each    Duration `json:"each"`
}

// Schedule is a round.
type Schedule struct {
	Options Options `json:"options"`
	Steps   []Step  `json:"steps"`
	Load    []Batch `json:"load"`
	// Keep, if set, is load that depends on what the fleet makes of it: as many jobs as can run, all the time.
	Keep *Saturation `json:"keep,omitempty"`
}

// Saturation keeps Open jobs of that length on their way in the large pool until the round is over. A job that waits longer
// than Bound is one too many.
type Saturation struct {
	Open  int      `json:"open"`
	Each  Duration `json:"each"`
	Bound Duration `json:"bound"`
}

// ReplicaEvery is how often a server dies in Replicas.
const ReplicaEvery = 20 * time.Second

// Replicas is the scenario of dying servers: of two, one is killed every 20 s, alternating, at saturation. It depends only on its
// arguments.
func Replicas(length time.Duration, open int, bound time.Duration) Schedule {
	s := Schedule{
		Options: Options{Length: Duration(length)},
		Keep:    &Saturation{Open: open, Each: Duration(2 * time.Second), Bound: Duration(bound)},
	}
	for at := ReplicaEvery; at < length; at += ReplicaEvery {
		n := len(s.Steps)
		s.Steps = append(s.Steps, Step{Number: n + 1, At: Duration(at), Kind: ServerKill, Target: servers[n%2]})
	}
	s.Options.Faults = len(s.Steps)
	return s
}

// Accounts is how many accounts the jobs belong to.
const Accounts = 3

// Make makes a round's schedule. It is pure.
func Make(o Options) (Schedule, error) {
	if o.Jobs < 0 || o.Faults < 0 || o.Length <= 0 {
		return Schedule{}, errors.New("a soak needs a length, and no negative number of jobs or faults")
	}
	for _, name := range o.Without {
		if known := append(Kinds(), GitHubFaults()...); !slices.Contains(known, name) {
			return Schedule{}, fmt.Errorf("there is no kind of fault %q to leave out: use %s", name, strings.Join(known, ", "))
		}
	}
	if !slices.Contains(o.Without, GitHub) && len(o.Without) >= len(gitHubFaults) {
		left := slices.DeleteFunc(GitHubFaults(), func(name string) bool { return slices.Contains(o.Without, name) })
		if len(left) == 0 {
			return Schedule{}, fmt.Errorf("all of GitHub's faults are left out one by one: leave out %q instead", GitHub)
		}
	}
	r := rand.New(rand.NewPCG(o.Seed, uint64(o.Round))) //nolint:gosec // a round is no negative number, and this is no secret
	return Schedule{Options: o, Steps: deal(r, o), Load: load(r, o)}, nil
}

// deal deals faults from a shuffled deck, and a new one when it is used up, so that even a short soak sees many kinds. The
// moments are spread evenly, each somewhere in its own slot; the last tenth is left free.
func deal(r *rand.Rand, o Options) []Step {
	var deck []kind
	length := time.Duration(o.Length)
	steps := make([]Step, 0, o.Faults)
	for n := range o.Faults {
		if len(deck) == 0 {
			if deck = shuffled(r, o.Without); len(deck) == 0 {
				return nil
			}
		}
		k := deck[0]
		deck = deck[1:]
		slot := length * 9 / 10 / time.Duration(o.Faults)
		at := slot*time.Duration(n) + length/50 + within(r, 0, slot)
		step := Step{Number: n + 1, At: round(at), Kind: k.name, Target: k.targets[r.IntN(len(k.targets))], Choice: r.Uint32()}
		step.For = round(within(r, k.least, min(k.most, max(length/5, k.least))))
		if k.detail != nil {
			k.detail(r, &step, o.Without)
		}
		steps = append(steps, step)
	}
	return steps
}

func shuffled(r *rand.Rand, without []string) []kind {
	var deck []kind
	for _, k := range kinds {
		if slices.Contains(without, k.name) {
			continue
		}
		for range k.cards {
			deck = append(deck, k)
		}
	}
	r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// load spreads the jobs in batches of one to eight over the length; most of them are for the large pool, and an account
// that is busier than the others has half.
func load(r *rand.Rand, o Options) []Batch {
	var batches []Batch
	for left := o.Jobs; left > 0; {
		b := Batch{At: round(within(r, 0, time.Duration(o.Length)*9/10)), Pool: PoolBulk, Account: 1, Jobs: min(left, 1+r.IntN(8))}
		switch p := r.IntN(100); {
		case p < 12:
			b.Pool = PoolAuto
		case p < 18:
			b.Pool, b.Jobs = PoolReal, min(b.Jobs, 2)
		}
		if r.IntN(2) == 0 {
			b.Account = 2 + r.IntN(Accounts-1)
		}
		b.Each = round(within(r, 0, 3*time.Second))
		if r.IntN(10) == 0 {
			b.Each = round(within(r, 5*time.Second, 15*time.Second))
		}
		left -= b.Jobs
		batches = append(batches, b)
	}
	slices.SortStableFunc(batches, func(a, b Batch) int { return cmp.Compare(a.At, b.At) })
	return batches
}

func within(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func round(d time.Duration) Duration { return Duration(d.Round(10 * time.Millisecond)) }
