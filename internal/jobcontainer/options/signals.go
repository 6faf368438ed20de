package options

import (
	"slices"
	"strconv"
	"strings"
)

// signals are those of Linux.
var signals = strings.Fields("ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ")

// IsSignal says whether Docker takes text as a signal: a number, or a name with or without SIG.
func IsSignal(text string) bool {
	if number, err := strconv.Atoi(text); err == nil {
		return number >= 1 && number <= 64
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if base, offset, found := strings.Cut(name, "+"); found && base == "RTMIN" {
		number, err := strconv.Atoi(offset)
		return err == nil && number >= 0 && number <= 30
	}
	if base, offset, found := strings.Cut(name, "-"); found && base == "RTMAX" {
		number, err := strconv.Atoi(offset)
		return err == nil && number >= 0 && number <= 30
	}
	return name == "RTMIN" || name == "RTMAX" || slices.Contains(signals, name)
}
