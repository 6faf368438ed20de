package simulate

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseTrace_ReadsWhatItWrites(t *testing.T) {
	for _, shape := range Shapes() {
		trace, err := MakeTrace(shape.Name, 1)
		require.NoError(t, err)
		again, err := MakeTrace(shape.Name, 1)
		require.NoError(t, err)
		require.Equal(t, trace, again, "the same seed")
		other, err := MakeTrace(shape.Name, 2)
		require.NoError(t, err)
		require.NotEqual(t, trace, other)
		var text bytes.Buffer
		require.NoError(t, WriteTrace(&text, trace))
		read, err := ParseTrace(&text)
		require.NoError(t, err)
		require.Equal(t, trace, read, shape.Name)
	}
	_, err := MakeTrace("nonsense", 1)
	require.ErrorContains(t, err, "office-day")
}

// The stated properties of office-day: the number of jobs, most of them in the working hours, and a median of three minutes.
func TestMakeTrace_OfficeDayIsAsStated(t *testing.T) {
	trace, err := MakeTrace("office-day", 1)
	require.NoError(t, err)
	require.InDelta(t, 240*(0.05*24+0.95*6), len(trace), 4*41, "four standard deviations")
	office, short := 0, 0
	for _, j := range trace {
		if h := j.QueuedAt.Hour(); h >= 7 && h < 19 {
			office++
		}
		if j.Duration < 3*time.Minute {
			short++
		}
	}
	require.InDelta(t, (0.05*12+0.95*6)/(0.05*24+0.95*6), float64(office)/float64(len(trace)), 0.03)
	require.InDelta(t, 0.5, float64(short)/float64(len(trace)), 0.05)
}

func TestParseTrace_OrdersAndTakesSeconds(t *testing.T) {
	trace, err := ParseTrace(strings.NewReader("duration_seconds,pool,account,queued_at\n1.5,linux,acme,20\n2,linux,acme,10.25\n"))
	require.NoError(t, err)
	require.Equal(t, Trace{
		{QueuedAt: time.Unix(10, 250e6).UTC(), Account: "acme", Pool: "linux", Duration: 2 * time.Second},
		{QueuedAt: time.Unix(20, 0).UTC(), Account: "acme", Pool: "linux", Duration: 1500 * time.Millisecond},
	}, trace)
}

func TestParseTrace_SaysWhereAndWhatIsExpected(t *testing.T) {
	const head = "queued_at,account,labels,duration_seconds\n"
	for text, want := range map[string]string{
		"":                                     "line 1: the trace is empty; expected the columns' names: queued_at,account,labels,pool,repository,duration_seconds",
		"when\n":                               `line 1: there is no column "when"; expected some of queued_at,account,labels,pool,repository,duration_seconds`,
		"queued_at,account,labels\n":           "line 1: the column duration_seconds is missing",
		"queued_at,queued_at\n":                "line 1: the column queued_at is there twice",
		"queued_at,account,duration_seconds\n": "line 1: expected a column labels or pool: what jobs ask for",
		head:                                   "line 2: the trace has no job; expected one a line",
		head + "1,a,l,1\nsoon,a,l,1\n":         `line 3, column 1 (queued_at): expected a time such as 2026-10-05T09:00:00Z, or a number of seconds, not "soon"`,
		head + "1,a,l,1\n2026-10-05T09:00:00Z,a,l,1\n": `line 3, column 1 (queued_at): expected a number of seconds, as on the lines before, not "2026-10-05T09:00:00Z"`,
		head + "2026-10-05T09:00:00Z,a,l,1\n1,a,l,1\n": `line 3, column 1 (queued_at): expected a time such as 2026-10-05T09:00:00Z, as on the lines before, not "1"`,
		head + "1,,l,1\n":    `line 2, column 3 (account): expected the login of an account, not ""`,
		head + "1,a,,1\n":    `line 2, column 5 (labels): expected labels with spaces between, or the name of a pool in the column pool: one of both, not ""`,
		head + "1,a,l,-1\n":  `line 2, column 7 (duration_seconds): expected a number of seconds from 0 to 3024000, not "-1"`,
		head + "1,a,l,NaN\n": `line 2, column 7 (duration_seconds): expected a number of seconds from 0 to 3024000, not "NaN"`,
		head + "1,a,l\n":     "line 2, column 1: expected as many fields as the first line has",
	} {
		_, err := ParseTrace(strings.NewReader(text))
		var problem *TraceError
		require.ErrorAs(t, err, &problem, text)
		require.Equal(t, want, err.Error(), text)
	}
}

// Everything that is read without an error can be written and read again, and its times are consistent.
func FuzzParseTrace(f *testing.F) {
	f.Add("queued_at,account,labels,duration_seconds,repository\n2026-10-05T09:00:00Z,acme,linux-4 gpu,12.5,acme/app\n")
	f.Add("queued_at,account,pool,duration_seconds\n-1e9,acme,linux,0\n")
	f.Add("queued_at,account,labels,duration_seconds\n\"1\",\"a\"\"b\",\" x;y, z\",1e3\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ParseTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		require.NoError(t, WriteTrace(&first, trace))
		again, err := ParseTrace(bytes.NewReader(first.Bytes()))
		if err != nil {
			// Seconds may lie before 1970, which as RFC 3339 is no time of a trace.
			require.True(t, trace[0].QueuedAt.Year() < 1970, "%v\n%s", err, first.String())
			return
		}
		require.NoError(t, WriteTrace(&second, again))
		require.Len(t, again, len(trace))
		for i, j := range trace {
			require.True(t, j.Duration >= 0 && j.Account != "" && (j.Pool == "") != (len(j.Labels) == 0))
			require.True(t, i == 0 || !j.QueuedAt.Before(trace[i-1].QueuedAt))
		}
	})
}

func TestParseDistribution(t *testing.T) {
	for text, want := range map[string]string{
		"20s": "fixed:20s", "fixed:0s": "fixed:0s", "exponential:1m": "exponential:1m0s", "uniform:10s,30s": "uniform:10s,30s",
		"lognormal:20s,0.5": "lognormal:20s,0.5",
	} {
		d, err := ParseDistribution(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d.String())
	}
	for _, text := range []string{"", "soon", "-1s", "uniform:10s", "uniform:10s,5s", "lognormal:1s", "lognormal:1s,-1", "lognormal:1s,NaN", "fixed:1s,2s", "beta:1s"} {
		_, err := ParseDistribution(text)
		require.Error(t, err, text)
	}
}

func TestParsePolicies_RefusesWhatIsNotPlayed(t *testing.T) {
	const pool = "policies: [{name: a, pools: [{name: p, spec: {labels: [l], resources: {cpu: '4', memory: 16Gi}%s}}]}]"
	_, err := ParsePolicies([]byte(strings.Replace(pool, "%s", "", 1)))
	require.NoError(t, err)
	for text, want := range map[string]string{
		"policies: []": "there is no policy",
		"policy: []":   "unknown field",
		strings.Replace(pool, "%s", ", replica: 3", 1):                             "unknown field",
		strings.Replace(pool, "%s", ", autoscaling: {enabled: true}", 1):           "set spec.autoscaling.maxReplicas",
		strings.Replace(pool, "%s", ", provisioning: {maxConcurrentStarts: 3}", 1): "leave it out",
		"policies: [{name: a, pools: [{name: p, spec: {labels: [l]}}]}]":           "spec.resources",
		"policies: [{name: a, pools: [{name: p}]}]":                                "spec.labels",
		"policies: [{name: a, pools: []}]":                                         "no pools",
		"accounts: {x: jobs=many}\n" + strings.Replace(pool, "%s", "", 1):          "invalid number of jobs",
	} {
		_, err := ParsePolicies([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}
