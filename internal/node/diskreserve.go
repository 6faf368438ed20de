package node

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DiskReserve is how much of a file system has to be free: a share of its size, or a number of bytes; the lesser of the two where both are
// given. The zero value is nothing.
type DiskReserve struct {
	Percent float64 // of the file system's size
	Bytes   int64
}

// DefaultDiskReserve is that of kubelets (evictionHard's nodefs.available).
var DefaultDiskReserve = DiskReserve{Percent: 10}

// ParseDiskReserve reads a percentage of up to 50 such as 10%, a quantity such as 20Gi, or both with a comma between them: 10%,20Gi.
func ParseDiskReserve(text string) (DiskReserve, error) {
	var r DiskReserve
	for part := range strings.SplitSeq(text, ",") {
		number, share := strings.CutSuffix(part, "%")
		switch {
		case share && r.Percent == 0:
			percent, err := strconv.ParseFloat(number, 64)
			if err != nil || !(percent > 0 && percent <= mostPercent) { // and NaN is neither
				return DiskReserve{}, malformedReserve(text)
			}
			r.Percent = percent
		case !share && r.Bytes == 0:
			q, err := resource.ParseQuantity(part)
			if err != nil || q.Sign() <= 0 || q.Value() <= 0 || strings.ContainsAny(part, "num") { // 20m would be a fiftieth of a byte
				return DiskReserve{}, malformedReserve(text)
			}
			r.Bytes = q.Value()
		default:
			return DiskReserve{}, malformedReserve(text)
		}
	}
	return r, nil
}

func malformedReserve(text string) error {
	return fmt.Errorf("%q: give a percentage of up to 50%% such as 10%%, a quantity such as 20Gi, or both for the lesser of the two: 10%%,20Gi", text)
}

// mostPercent caps the reserve of a disk: with a higher one a node could report DiskPressure for ever.
const mostPercent = 50

// of is the reserve in bytes of a file system of that size.
func (r DiskReserve) of(total uint64) float64 {
	reserve := float64(total)
	if r.Percent > 0 || r.Bytes == 0 {
		reserve *= r.Percent / 100
	}
	if r.Bytes > 0 {
		reserve = min(reserve, float64(r.Bytes))
	}
	return min(reserve, float64(total)*mostPercent/100)
}

// String is as ParseDiskReserve reads it.
func (r DiskReserve) String() string {
	var parts []string
	if r.Percent > 0 {
		parts = append(parts, strconv.FormatFloat(r.Percent, 'f', -1, 64)+"%")
	}
	if r.Bytes > 0 {
		parts = append(parts, resource.NewQuantity(r.Bytes, resource.BinarySI).String())
	}
	return strings.Join(parts, ",")
}
