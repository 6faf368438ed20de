package fields

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// ErrUnsortable is returned for a field that holds lists or objects.
var ErrUnsortable = errors.New("not a field to sort by: it holds lists or objects")

// key is what values are compared by. Kinds are ordered; a missing value comes first.
type key struct {
	kind   int
	number float64
	whole  int64
	text   string
	at     time.Time
}

// The kinds of keys, in their order.
const (
	kindMissing = iota
	kindBool
	kindNumber
	kindTime
	kindText
)

// Order returns the indices of values in ascending order of the field. Equal ones keep their order.
func Order(values []any, by Path) ([]int, error) {
	keys, order := make([]key, len(values)), make([]int, len(values))
	for i, value := range values {
		found, err := by.Find(value)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			if keys[i], err = keyOf(found[0]); err != nil {
				return nil, err
			}
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return keys[a].compare(keys[b]) })
	return order, nil
}

func keyOf(value any) (key, error) {
	switch value := value.(type) {
	case nil:
		return key{}, nil
	case bool:
		k := key{kind: kindBool}
		if value {
			k.whole = 1
		}
		return k, nil
	case int64:
		return key{kind: kindNumber, number: float64(value), whole: value}, nil
	case float64:
		return key{kind: kindNumber, number: value}, nil
	case string:
		if at, err := time.Parse(time.RFC3339, value); err == nil {
			return key{kind: kindTime, at: at}, nil
		}
		return key{kind: kindText, text: value}, nil
	}
	return key{}, ErrUnsortable
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.number, other.number), cmp.Compare(k.whole, other.whole), k.at.Compare(other.at),
		natural(k.text, other.text))
}

// natural compares texts, and runs of digits in them as numbers: linux-4 comes before linux-16.
func natural(a, b string) int {
	for a != "" && b != "" {
		digitsA, digitsB := leadingDigits(a), leadingDigits(b)
		if digitsA != "" && digitsB != "" {
			numberA, numberB := strings.TrimLeft(digitsA, "0"), strings.TrimLeft(digitsB, "0")
			if c := cmp.Or(cmp.Compare(len(numberA), len(numberB)), strings.Compare(numberA, numberB)); c != 0 {
				return c
			}
			a, b = a[len(digitsA):], b[len(digitsB):]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
}
