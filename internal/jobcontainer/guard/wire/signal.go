package wire

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Linux' real-time signals as the C libraries number them.
const (
	rtMin = 34
	rtMax = 64
)

// signals of Linux, with the same numbers on all of its platforms that images are built for.
var signals = map[string]syscall.Signal{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "IOT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12,
	"PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16, "CHLD": 17, "CLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23,
	"XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "POLL": 29, "PWR": 30, "SYS": 31, "RTMIN": rtMin, "RTMAX": rtMax,
}

// ParseSignal reads STOPSIGNAL of an image, or --stop-signal: a number, or a name with or without SIG, in any case, also RTMIN+n and
// RTMAX-n. Empty is SIGTERM.
func ParseSignal(text string) (syscall.Signal, error) {
	if text == "" {
		return syscall.SIGTERM, nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > rtMax {
			return 0, fmt.Errorf("signal %q: expected 1 to %d", text, rtMax)
		}
		return syscall.Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if number, found := signals[name]; found {
		return number, nil
	}
	for base, sign := range map[string]int{"RTMIN+": 1, "RTMAX-": -1} {
		if offset, found := strings.CutPrefix(name, base); found {
			n, err := strconv.ParseUint(offset, 10, 8)
			if number := int(signals[base[:5]]) + sign*int(n); err == nil && number >= rtMin && number <= rtMax {
				return syscall.Signal(number), nil
			}
		}
	}
	return 0, fmt.Errorf("unknown signal %q: expected a name such as SIGTERM, or a number", text)
}
