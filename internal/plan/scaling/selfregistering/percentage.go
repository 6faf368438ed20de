package selfregistering

import "fmt"

// Percentage scales by the share of busy runners. All numbers are percentages.
type Percentage struct {
	UpAbove, DownBelow   int
	UpFactor, DownFactor int
}

// wants is the number that the share of busy runners suggests, and why. The share is that of the number in force, not of
// the runners that exist. Booting runners count as what they were created for, so that one wave of work raises the number
// once and not at every decision.
func (p Percentage) wants(number int, runners Runners, jobs bool) (int, string) {
	if number == 0 {
		if jobs { // they raise it from nothing
			return 0, ""
		}
		return 1, "no runner is ready" // with no runners the share is always zero, and the number would never rise
	}
	share := 100 * runners.Busy / number
	because := fmt.Sprintf("%d of %d busy", runners.Busy, number)
	switch {
	case 100*runners.Busy > p.UpAbove*number:
		return ceil(number*p.UpFactor, 100), fmt.Sprintf("%s, more than %d%%", because, p.UpAbove)
	case 100*runners.Busy < p.DownBelow*number:
		least := 0
		if !jobs {
			least = 1
		}
		return max(least, runners.Busy, number*p.DownFactor/100), fmt.Sprintf("%s, less than %d%%", because, p.DownBelow)
	default:
		return number, fmt.Sprintf("%s (%d%%)", because, share)
	}
}

func ceil(n, by int) int { return (n + by - 1) / by }
