package fleet

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseCPU reads a number of CPUs as people write it ("4", "0.5", "500m") into thousandths.
func ParseCPU(text string) (int64, error) {
	bad := fmt.Errorf("invalid number of CPUs %q: expected a number such as 4, 0.5 or 500m", text)
	if milli, ok := strings.CutSuffix(text, "m"); ok {
		n, err := strconv.ParseUint(milli, 10, 40)
		if err != nil {
			return 0, bad
		}
		return int64(n), nil //nolint:gosec // 40 bits
	}
	whole, part, dotted := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 30)
	if err != nil || dotted && (part == "" || len(part) > 3) {
		return 0, bad
	}
	milli := uint64(0)
	if dotted {
		if milli, err = strconv.ParseUint((part + "00")[:3], 10, 30); err != nil {
			return 0, bad
		}
	}
	return int64(n*1000 + milli), nil //nolint:gosec // 40 bits
}

// FormatCPU is how ParseCPU reads it back.
func FormatCPU(milli int64) string {
	if milli%1000 == 0 {
		return strconv.FormatInt(milli/1000, 10)
	}
	return strconv.FormatInt(milli, 10) + "m"
}

// ParseMemory reads an amount of memory as people write it ("64Gi", "512Mi", "1Ti") into mebibytes.
func ParseMemory(text string) (int64, error) {
	for suffix, mebibytes := range map[string]uint64{"Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			if n, err := strconv.ParseUint(number, 10, 20); err == nil {
				return int64(n * mebibytes), nil //nolint:gosec // 40 bits
			}
		}
	}
	if text == "0" {
		return 0, nil
	}
	return 0, fmt.Errorf("invalid amount of memory %q: expected an amount such as 512Mi, 64Gi or 1Ti", text)
}

// FormatMemory is how ParseMemory reads it back.
func FormatMemory(mebibytes int64) string {
	switch {
	case mebibytes == 0:
		return "0"
	case mebibytes%(1<<20) == 0:
		return strconv.FormatInt(mebibytes>>20, 10) + "Ti"
	case mebibytes%(1<<10) == 0:
		return strconv.FormatInt(mebibytes>>10, 10) + "Gi"
	default:
		return strconv.FormatInt(mebibytes, 10) + "Mi"
	}
}

// ParseLimits reads "jobs=40,cpu=32,memory=64Gi,jobs-per-repository=5"; what is left out stays as it is in l.
func ParseLimits(text string, l Limits) (Limits, error) {
	seen := map[string]bool{}
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if seen[name] {
			return Limits{}, fmt.Errorf("%s is given twice in %q", name, text)
		}
		seen[name] = true
		var err error
		switch name {
		case "jobs":
			l.Jobs, err = parseCount(value)
		case "jobs-per-repository":
			l.JobsPerRepository, err = parseCount(value)
		case "cpu":
			l.MilliCPU, err = ParseCPU(value)
		case "memory":
			l.MemoryMB, err = ParseMemory(value)
		default:
			err = fmt.Errorf("unknown limit %q in %q: expected limits such as jobs=40,cpu=32,memory=64Gi,jobs-per-repository=5", name, text)
		}
		if err != nil {
			return Limits{}, err
		}
	}
	return l, nil
}

func parseCount(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 40)
	if err != nil {
		return 0, fmt.Errorf("invalid number of jobs %q: expected a number such as 40", text)
	}
	return int64(n), nil //nolint:gosec // 40 bits
}
