package servicename

import (
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

// Declared is a service of the job's message.
type Declared struct {
	Name  string
	Image string // as in the workflow; empty: it is an expression, or is not there
}

// Resolve returns one name for each image. The images are those that the runner asks for: in the order of the declared services,
// without those whose image is empty. All names are different, and may stand in /etc/hosts.
func Resolve(declared []Declared, images []string) []string {
	names := make([]string, len(images))
	taken := map[string]bool{}
	for i, at := range align(declared, images) {
		if at < 0 {
			continue
		}
		if name := declared[at].Name; options.IsHostName(name) && !taken[name] {
			names[i] = name
			taken[name] = true
		}
	}
	for i, image := range images {
		if names[i] == "" {
			names[i] = free(BaseName(image), taken)
			taken[names[i]] = true
		}
	}
	return names
}

// align returns, for each image, the only declared service that it can be, or -1. Services are asked for in order, and only those
// whose image is not written out may be missing.
func align(declared []Declared, images []string) []int {
	// Whether the services before s can be the images before i, and whether those from s on can be the images from i on.
	before, after := table(len(declared), len(images)), table(len(declared), len(images))
	before[0][0], after[len(declared)][len(images)] = true, true
	for s := range len(declared) + 1 {
		for i := range len(images) + 1 {
			if s > 0 && before[s-1][i] && declared[s-1].Image == "" || s > 0 && i > 0 && before[s-1][i-1] && canBe(declared[s-1], images[i-1]) {
				before[s][i] = true
			}
		}
	}
	for s := len(declared) - 1; s >= 0; s-- {
		for i := len(images); i >= 0; i-- {
			if after[s+1][i] && declared[s].Image == "" || i < len(images) && after[s+1][i+1] && canBe(declared[s], images[i]) {
				after[s][i] = true
			}
		}
	}
	only := make([]int, len(images))
	for i, image := range images {
		only[i] = -1
		found := 0
		for s := range declared {
			if before[s][i] && canBe(declared[s], image) && after[s+1][i+1] {
				only[i] = s
				found++
			}
		}
		if found != 1 {
			only[i] = -1
		}
	}
	return only
}

func table(services, images int) [][]bool {
	rows := make([][]bool, services+1)
	for s := range rows {
		rows[s] = make([]bool, images+1)
	}
	return rows
}

func canBe(declared Declared, image string) bool {
	return declared.Image == "" || strings.EqualFold(withoutScheme(declared.Image), withoutScheme(image)) || strings.Contains(declared.Image, "***")
}

func withoutScheme(image string) string {
	const scheme = "docker://"
	if len(image) >= len(scheme) && strings.EqualFold(image[:len(scheme)], scheme) {
		return image[len(scheme):]
	}
	return image
}

// BaseName returns the last part of an image's path: postgres for ghcr.io/acme/postgres:17@sha256:….
func BaseName(image string) string {
	image, _, _ = strings.Cut(withoutScheme(image), "@")
	base := image[strings.LastIndexByte(image, '/')+1:]
	base, _, _ = strings.Cut(base, ":")
	base = strings.ToLower(base)
	if !options.IsHostName(base) {
		return "service"
	}
	return base
}

// free returns name, or name-2, name-3 and so on if it is taken.
func free(name string, taken map[string]bool) string {
	candidate := name
	for i := 2; taken[candidate]; i++ {
		candidate = fmt.Sprintf("%s-%d", name, i)
	}
	return candidate
}
