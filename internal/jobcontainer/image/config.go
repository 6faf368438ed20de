package image

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// maxConfig bounds the bytes of an image's command, environment, ports and volumes together: they are sent to the job's runner, and
// Linux starts no process with more.
const maxConfig = 128 << 10

// maxTexts bounds how many there are of those: an empty one has nearly no bytes, but not in the controller's memory. Images that expose a range of
// 10,000 ports are in use.
const maxTexts = 16 << 10

// parseConfig reads an image's config (OCI image-spec, image configuration, and Docker's Healthcheck). It leaves out what has no meaning:
// environment without a name, ports that are not numbers, volumes without an absolute path. Errors are *notImage.
func parseConfig(body []byte) (jobcontainer.ImageConfig, Platform, error) {
	var file struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Variant      string `json:"variant"`
		Config       struct {
			Entrypoint   []string
			Cmd          []string
			Env          []string
			User         string
			WorkingDir   string
			StopSignal   string
			ExposedPorts map[string]struct{}
			Volumes      map[string]struct{}
			Healthcheck  *struct {
				Test                                          []string
				Interval, Timeout, StartPeriod, StartInterval time.Duration
				Retries                                       int
			}
		} `json:"config"`
	}
	if err := json.Unmarshal(body, &file); err != nil {
		return jobcontainer.ImageConfig{}, Platform{}, &notImage{"its config is not valid"}
	}
	platform := Platform{OS: file.OS, Architecture: file.Architecture, Variant: file.Variant}.normalized()
	config := jobcontainer.ImageConfig{
		OS: platform.OS, Architecture: platform.Architecture,
		Entrypoint: file.Config.Entrypoint, Cmd: file.Config.Cmd, Env: environment(file.Config.Env),
		User: file.Config.User, WorkingDir: file.Config.WorkingDir, StopSignal: file.Config.StopSignal,
		ExposedPorts: ports(file.Config.ExposedPorts), Volumes: volumes(file.Config.Volumes),
	}
	if check := file.Config.Healthcheck; check != nil && isTest(check.Test) {
		config.Healthcheck = &jobcontainer.Healthcheck{
			Test: check.Test, Interval: max(check.Interval, 0), Timeout: max(check.Timeout, 0),
			StartPeriod: max(check.StartPeriod, 0), StartInterval: max(check.StartInterval, 0), Retries: max(check.Retries, 0),
		}
	}
	return config, platform, checkConfig(config)
}

func environment(entries []string) []string {
	return slices.DeleteFunc(entries, func(entry string) bool {
		name, _, ok := strings.Cut(entry, "=")
		return !ok || name == ""
	})
}

// ports are number/protocol, sorted by number. TCP is the default.
func ports(exposed map[string]struct{}) []string {
	type port struct {
		number   uint64
		protocol string
	}
	known := map[port]bool{}
	for text := range exposed {
		number, protocol, ok := strings.Cut(strings.ToLower(text), "/")
		if !ok {
			protocol = "tcp"
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err == nil && n > 0 && slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
			known[port{n, protocol}] = true
		}
	}
	found := slices.Collect(maps.Keys(known))
	slices.SortFunc(found, func(a, b port) int {
		if a.number != b.number {
			return int(a.number) - int(b.number) //nolint:gosec // at most 65535
		}
		return strings.Compare(a.protocol, b.protocol)
	})
	var list []string
	for _, p := range found {
		list = append(list, fmt.Sprintf("%d/%s", p.number, p.protocol))
	}
	return list
}

func volumes(declared map[string]struct{}) []string {
	known := map[string]bool{}
	for text := range declared {
		if clean := path.Clean(text); path.IsAbs(clean) && clean != "/" {
			known[clean] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// isTest reports whether a health check says how to check.
func isTest(test []string) bool {
	if len(test) == 0 {
		return false
	}
	switch test[0] {
	case "NONE":
		return true
	case "CMD":
		return len(test) > 1
	case "CMD-SHELL":
		return len(test) == 2
	}
	return false
}

// checkConfig refuses what no process can be started with.
func checkConfig(config jobcontainer.ImageConfig) error {
	texts := slices.Concat(config.Entrypoint, config.Cmd, config.Env, config.ExposedPorts, config.Volumes,
		[]string{config.User, config.WorkingDir, config.StopSignal, config.OS, config.Architecture})
	if config.Healthcheck != nil {
		texts = append(texts, config.Healthcheck.Test...)
	}
	if len(texts) > maxTexts {
		return &notImage{fmt.Sprintf("its command, environment, ports and volumes are more than %d", maxTexts)}
	}
	size := 0
	for _, text := range texts {
		size += len(text) + 1
		if strings.ContainsRune(text, 0) {
			return &notImage{"its config has a text with a zero byte"}
		}
	}
	if size > maxConfig {
		return &notImage{fmt.Sprintf("its command, environment, ports and volumes have more than %d bytes", maxConfig)}
	}
	return nil
}
