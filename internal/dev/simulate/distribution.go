package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Distribution is how long something takes.
type Distribution struct {
	kind string
	a, b float64 // seconds, but for the sigma of a lognormal
}

// Fixed always takes that long.
func Fixed(d time.Duration) Distribution { return Distribution{kind: "fixed", a: d.Seconds()} }

// LogNormal has that median; sigma is the standard deviation of its logarithm.
func LogNormal(median time.Duration, sigma float64) Distribution {
	return Distribution{kind: "lognormal", a: median.Seconds(), b: sigma}
}

// Exponential has that mean.
func Exponential(mean time.Duration) Distribution {
	return Distribution{kind: "exponential", a: mean.Seconds()}
}

// ParseDistribution reads "20s", "fixed:20s", "exponential:20s", "uniform:10s,30s" or "lognormal:20s,0.5" (the median, and the
// standard deviation of the logarithm).
func ParseDistribution(text string) (Distribution, error) {
	bad := fmt.Errorf("%q says no time: write it like 20s, exponential:20s, uniform:10s,30s or lognormal:20s,0.5", text)
	kind, rest, named := strings.Cut(text, ":")
	if !named {
		kind, rest = "fixed", text
	}
	first, second, two := strings.Cut(rest, ",")
	a, err := time.ParseDuration(first)
	if err != nil || a < 0 || two != (kind == "uniform" || kind == "lognormal") {
		return Distribution{}, bad
	}
	d := Distribution{kind: kind, a: a.Seconds()}
	switch kind {
	case "fixed", "exponential":
	case "uniform":
		b, err := time.ParseDuration(second)
		if err != nil || b < a {
			return Distribution{}, bad
		}
		d.b = b.Seconds()
	case "lognormal":
		if _, err := fmt.Sscanf(second, "%g", &d.b); err != nil || d.b < 0 || d.b > 5 || math.IsNaN(d.b) {
			return Distribution{}, bad
		}
	default:
		return Distribution{}, bad
	}
	return d, nil
}

// String is how ParseDistribution reads it.
func (d Distribution) String() string {
	first := seconds(d.a)
	switch d.kind {
	case "":
		return "fixed:0s"
	case "uniform":
		return fmt.Sprintf("%s:%s,%s", d.kind, first, seconds(d.b))
	case "lognormal":
		return fmt.Sprintf("%s:%s,%g", d.kind, first, d.b)
	default:
		return fmt.Sprintf("%s:%s", d.kind, first)
	}
}

// Draw is one time.
func (d Distribution) Draw(r *rand.Rand) time.Duration {
	switch d.kind {
	case "exponential":
		return seconds(d.a * r.ExpFloat64())
	case "uniform":
		return seconds(d.a + (d.b-d.a)*r.Float64())
	case "lognormal":
		return seconds(d.a * math.Exp(d.b*r.NormFloat64()))
	default:
		return seconds(d.a)
	}
}

// longest bounds what a distribution can draw: no run of a workflow lasts longer.
const longest = 35 * 24 * time.Hour

func seconds(s float64) time.Duration {
	return time.Duration(min(s, longest.Seconds()) * float64(time.Second))
}
