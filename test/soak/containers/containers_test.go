package containers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMake_IsAFunctionOfItsSeed(t *testing.T) {
	o := Options{Seed: 3, Jobs: 100, Faults: 40, Length: 20 * time.Minute}
	s := Make(o)
	require.Equal(t, s, Make(o))
	o.Seed++
	require.NotEqual(t, s, Make(o))

	kinds, cancelled := map[Kind]int{}, 0
	for i, f := range s.Faults {
		kinds[f.Kind]++
		require.Less(t, f.At+f.For, o.Length, "%s", f)
		if i > 0 {
			require.Greater(t, f.At, s.Faults[i-1].At+s.Faults[i-1].For, "one at a time")
		}
		require.Equal(t, f.Kind.Excuses() || f.Kind == APIStopped, f.For > 0, "%s", f)
	}
	require.Len(t, kinds, len(Kinds))
	require.Len(t, s.Jobs, o.Jobs)
	for _, job := range s.Jobs {
		require.LessOrEqual(t, job.At, o.Length)
		require.False(t, job.Action && !job.InContainer)
		if job.CancelAfter > 0 {
			cancelled++
		}
	}
	require.Positive(t, cancelled)
}

func TestMake_OfOneKind(t *testing.T) {
	for _, f := range Make(Options{Faults: 3, Length: time.Minute, Kinds: []Kind{KubeletKilled}}).Faults {
		require.Equal(t, KubeletKilled, f.Kind)
	}
}

func TestMake_FewFaultsAreOfDifferentKinds(t *testing.T) {
	for seed := range uint64(20) {
		kinds := map[Kind]bool{}
		for _, f := range Make(Options{Seed: seed, Jobs: 1, Faults: len(Kinds), Length: 2 * time.Minute}).Faults {
			kinds[f.Kind] = true
		}
		require.Len(t, kinds, len(Kinds))
	}
}

func TestExamine(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1_000_000+int64(seconds), 0) }
	const image = "registry.test/tools"
	good := Outcome{Number: 1, Conclusion: "success", Acquisitions: 1, Started: at(10), Completed: at(20), Images: []string{image}}
	refused := good
	refused.Conclusion, refused.Log = "failure", "##[group]Starting job container\n##[error]Image '"+image+"@sha256:1' could not be pulled: 503\n"
	cancelled := good
	cancelled.Conclusion, cancelled.Cancelled = "cancelled", at(18)
	pulls := []Strike{{RegistryFails, at(15), at(16)}}

	for name, c := range map[string]struct {
		job     Outcome
		strikes []Strike
		edit    func(*Outcome)
		rows    []string
	}{
		"a success":                            {job: good},
		"a success in spite of a fault":        {job: good, strikes: pulls},
		"an excused failure":                   {job: refused, strikes: pulls},
		"a cancelled job":                      {job: cancelled},
		"one that was done before the request": {job: cancelled, edit: func(j *Outcome) { j.Conclusion = "success" }},
		"one that no runner had yet":           {job: cancelled, edit: func(j *Outcome) { j.Acquisitions = 0 }},
		"not completed":                        {job: good, edit: func(j *Outcome) { j.Conclusion, j.Completed = "", time.Time{} }, rows: []string{"jobs lost"}},
		"never run":                            {job: good, edit: func(j *Outcome) { j.Acquisitions = 0 }, rows: []string{"jobs lost"}},
		"run twice":                            {job: good, edit: func(j *Outcome) { j.Acquisitions = 2 }, rows: []string{"jobs run twice"}},
		"a runner that fell silent":            {job: good, edit: func(j *Outcome) { j.Vanished, j.Conclusion = true, "failure" }, rows: []string{"jobs killed while they ran"}},
		"a failure without a fault":            {job: refused, rows: []string{"jobs failed without a fault of the registry"}},
		"a failure by another fault":           {job: refused, strikes: []Strike{{KubeletKilled, at(15), at(16)}}, rows: []string{"jobs failed without a fault of the registry"}},
		"a failure before the fault":           {job: refused, strikes: []Strike{{RegistryCuts, at(21), at(22)}}, rows: []string{"jobs failed without a fault of the registry"}},
		"a failure that says nothing":          {job: refused, strikes: pulls, edit: func(j *Outcome) { j.Log = "##[error]exit code 1\nImage '" + image + "'\n" }, rows: []string{"failures without a clear text"}},
		"cancelled, but not by a user":         {job: cancelled, edit: func(j *Outcome) { j.Cancelled = time.Time{} }, rows: []string{"jobs failed without a fault of the registry"}},
		"a cancelled job that went on":         {job: cancelled, edit: func(j *Outcome) { j.Completed = at(200) }, rows: []string{"cancelled jobs that did not end"}},
	} {
		job := c.job
		if c.edit != nil {
			c.edit(&job)
		}
		require.Equal(t, c.rows, notEmpty(Examine(Evidence{Jobs: []Outcome{job}, Strikes: c.strikes})), name)
	}
	require.Equal(t, []string{"claims left", "pods left", "pull Secrets left", "containers left on the node", "registrations left at GitHub", "secrets seen"}, notEmpty(Examine(Evidence{
		Claims: []string{"a"}, Pods: []string{"b"}, Secrets: []string{"c"}, Containers: []string{"d"}, Registrations: []string{"e"}, Exposed: []string{"f"},
	})))
}

func notEmpty(rows []Row) []string {
	var names []string
	for _, row := range rows {
		if len(row.Findings) > 0 {
			names = append(names, row.Name)
		}
	}
	return names
}
