package node

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DiskReserve is how much of a file system has to be free: a share of its size, or a number of bytes. The zero value is nothing.
type DiskReserve struct {
	Percent float64 // of the file system's size; used where it is not zero
	Bytes   int64
}

// DefaultDiskReserve is that of kubelets (evictionHard's nodefs.available).
var DefaultDiskReserve = DiskReserve{Percent: 10}

// ParseDiskReserve reads a percentage of up to 50 such as 10%, or a quantity such as 20Gi.
func ParseDiskReserve(text string) (DiskReserve, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(number, 64)
		if err != nil || !(percent > 0 && percent <= 50) { // and NaN is neither
			return DiskReserve{}, fmt.Errorf("%q: give a percentage above 0%% and up to 50%%, or a quantity such as 20Gi", text)
		}
		return DiskReserve{Percent: percent}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 || q.Value() <= 0 {
		return DiskReserve{}, fmt.Errorf("%q: give a percentage such as 10%%, or a quantity such as 20Gi", text)
	}
	return DiskReserve{Bytes: q.Value()}, nil
}

// of is the reserve in bytes of a file system of that size.
func (r DiskReserve) of(total uint64) float64 {
	if r.Percent > 0 {
		return r.Percent / 100 * float64(total)
	}
	return float64(r.Bytes)
}

// String is as ParseDiskReserve reads it.
func (r DiskReserve) String() string {
	if r.Percent > 0 {
		return strconv.FormatFloat(r.Percent, 'f', -1, 64) + "%"
	}
	return resource.NewQuantity(r.Bytes, resource.BinarySI).String()
}
