package options

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

func env(u used) {
	name, value, given := strings.Cut(u.value, "=")
	if name == "" {
		u.invalid("must be NAME=value or NAME")
		return
	}
	u.options().Env = append(u.options().Env, Variable{Name: name, Value: value, FromRunner: !given})
}

// addHost reads NAME:IP or NAME=IP. Docker's host-gateway is the host of the containers: here, all have one network address.
func addHost(u used) {
	name, ip, found := strings.Cut(u.value, "=")
	if !found {
		name, ip, found = strings.Cut(u.value, ":")
	}
	ip = strings.TrimSuffix(strings.TrimPrefix(ip, "["), "]")
	if ip == "host-gateway" {
		ip = "127.0.0.1"
	}
	address, err := netip.ParseAddr(ip)
	if !found || !IsHostName(name) || err != nil || address.Zone() != "" {
		u.invalid("must be NAME:IP")
		return
	}
	u.options().AddHosts = append(u.options().AddHosts, Host{Name: name, IP: address.String()})
}

func hostname(u used) {
	if !IsHostName(u.value) {
		u.invalid("must be a host name")
		return
	}
	u.options().Hostname = u.value
}

func alias(u used) {
	if !IsHostName(u.value) {
		u.invalid("must be a host name")
		return
	}
	u.options().Names = append(u.options().Names, u.value)
}

// IsHostName says whether a name may stand in /etc/hosts: letters, digits, dots, hyphens and underscores. localhost may not, since
// it has an address already.
func IsHostName(name string) bool {
	if name == "" || len(name) > 253 || strings.EqualFold(name, "localhost") {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", rune(c)) {
			return false
		}
	}
	return name[0] != '-' && name[0] != '.'
}

func (u used) health() {
	u.options().HealthIsChanged = true
	if u.parser.healthSet == "" {
		u.parser.healthSet = u.rule.name
	}
}

func healthCommand(u used) {
	u.health()
	u.options().Health.Command = u.value
}

func healthDuration(u used) {
	u.health()
	duration, err := time.ParseDuration(u.value)
	switch {
	case err != nil:
		u.invalid("must be a duration with a unit, such as 10s or 1m30s")
		return
	case duration < 0:
		u.invalid("must be 0 or greater")
		return
	case duration > 0 && duration < time.Millisecond:
		u.invalid("must be 1ms or greater")
		return
	}
	health := &u.options().Health
	switch u.rule.name {
	case "health-interval":
		health.Interval = duration
	case "health-timeout":
		health.Timeout = duration
	case "health-start-period":
		health.StartPeriod = duration
	case "health-start-interval":
		health.StartInterval = duration
	}
}

func healthRetries(u used) {
	u.health()
	retries, err := strconv.Atoi(u.value)
	if err != nil || retries < 0 {
		u.invalid("must be a number, 0 or greater")
		return
	}
	u.options().Health.Retries = retries
}

func user(u used) {
	name, group, found := strings.Cut(u.value, ":")
	if name == "" || (found && group == "") || strings.ContainsAny(u.value, " \t\n") || strings.Contains(group, ":") {
		u.invalid("must be USER or USER:GROUP, names or numbers")
		return
	}
	u.options().User = u.value
}

func workdir(u used) {
	if !path.IsAbs(u.value) {
		u.invalid("must be an absolute path")
		return
	}
	u.options().WorkDir = path.Clean(u.value)
}

func restart(u used) {
	if u.value != "" && u.value != "no" {
		u.warn("a container of a job is not started again")
	}
}

func stopSignal(u used) {
	if !IsSignal(u.value) {
		u.invalid("must be the name or number of a signal, such as SIGINT")
		return
	}
	u.options().StopSignal = u.value
}

func stopTimeout(u used) {
	seconds, err := strconv.Atoi(u.value)
	if err != nil {
		u.invalid("must be a number of seconds")
		return
	}
	u.options().StopTimeout = &seconds
}

// ulimit reads TYPE=SOFT[:HARD]. Only the number of open files can be set without privilege and makes a difference.
func ulimit(u used) {
	name, limits, found := strings.Cut(u.value, "=")
	soft, hard, two := strings.Cut(limits, ":")
	if !two {
		hard = soft
	}
	low, lowErr := strconv.ParseInt(soft, 10, 64)
	high, highErr := strconv.ParseInt(hard, 10, 64)
	valid := found && name != "" && lowErr == nil && highErr == nil && low >= -1 && high >= -1
	switch {
	case !valid:
		u.invalid("must be TYPE=SOFT or TYPE=SOFT:HARD")
	case high != -1 && (low == -1 || low > high):
		u.invalid("the soft limit must not be above the hard limit")
	case name != "nofile":
		u.warn("of the limits of processes, only nofile can be set on this runner")
	default:
		u.options().NoFile = &Limit{Soft: low, Hard: high}
	}
}

// ipc reads --ipc. The containers of a pod share System V IPC, POSIX message queues and /dev/shm, and reach no other's. Workflows say host for the
// size of the host's /dev/shm, which is much more than what containers have.
func ipc(u used) {
	const shared = "the containers of a job share IPC"
	switch u.value {
	case "", "shareable":
	case "host":
		u.warn(fmt.Sprintf("%s, and /dev/shm has %d MiB", shared, u.parser.pool.shm()>>20))
	case "private", "none":
		u.warn(shared)
	default: // that of a container which the workflow did not start
		u.refuse("")
	}
}

// shm is the size of /dev/shm.
func (p Pool) shm() int64 {
	if p.ShmBytes > 0 {
		return p.ShmBytes
	}
	return jobcontainer.DefaultShm
}

func shmSize(u used) {
	bytes, valid := parseBytes(u.value)
	most := u.parser.pool.shm()
	switch {
	case !valid:
		u.invalid("must be a size such as 512m or 1g")
	case bytes > most:
		u.refuse(fmt.Sprintf(": its /dev/shm has %d MiB", most>>20))
	default:
		poolDecides(u)
	}
}

// parseBytes reads a size as Docker does: a number with an optional unit b, k, m, g or t, followed by an optional b or ib.
func parseBytes(text string) (int64, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	number := strings.TrimRight(text, "bikmgtp ")
	unit := strings.TrimSpace(text[len(number):])
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || !(value >= 0 && value <= 1<<50) { // also NaN
		return 0, false
	}
	switch strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i") {
	case "":
	case "k":
		value *= 1 << 10
	case "m":
		value *= 1 << 20
	case "g":
		value *= 1 << 30
	case "t":
		value *= 1 << 40
	default:
		return 0, false
	}
	if value > 1<<62 {
		return 0, false
	}
	return int64(value), true
}
