package commandline

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// AtLeast adds a flag that takes a whole number, least or more.
func AtLeast[N int | int64](flags *pflag.FlagSet, into *N, name string, least, otherwise N, usage string) {
	*into = otherwise
	flags.Var(&bounded[N]{into, least}, name, usage)
}

// bounded is a number with a lower bound.
type bounded[N int | int64] struct {
	into  *N
	least N
}

func (b *bounded[N]) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, strconv.IntSize)
	if errors.Is(err, strconv.ErrRange) {
		return err
	}
	if err != nil || N(n) < b.least {
		return ValueError{fmt.Sprintf("%d or more", b.least)}
	}
	*b.into = N(n)
	return nil
}

func (b *bounded[N]) String() string {
	if b.into == nil { // the library asks a zero value
		return "0"
	}
	return strconv.FormatInt(int64(*b.into), 10)
}

// Type is what help calls the value.
func (b *bounded[N]) Type() string { return "int" }
