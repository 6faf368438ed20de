package architecture

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// The house: internal/<process> is what that process runs, internal/dev never ships, and what only tests use lives under test/.
// The tag "production", with which images and the kubectl plugin are built, leaves out what is for one machine and for development.

// neverShips are the directories that nothing that ships depends on.
var neverShips = []string{"internal/dev", "test", "scripts"}

// programs are those that ship, and the tags that each is built with.
var programs = []program{
	{"cmd/bullpen", "production"}, // in images, from which the controller copies it to Macs
	{"cmd/bullpen-agent", "production"},
	{"cmd/bullpen-migrate", ""},
}

// released are the builds of .goreleaser.yaml, by their ids. laptop has bullpen up.
var released = map[string]program{
	laptop:            {"./cmd/bullpen", ""},
	"kubectl-bullpen": {"./cmd/bullpen", "production"},
	"bullpen-agent":   {"./cmd/bullpen-agent", ""},
	"bullpen-migrate": {"./cmd/bullpen-migrate", ""},
}

const laptop = "bullpen"

type program struct{ main, tags string }

// contents returns the packages of this module that a program consists of when it is built for the system with the tags.
func contents(t *testing.T, program, system, tags string) []string {
	t.Helper()
	noticeChanges(t)
	list := exec.CommandContext(await.Context(t), "go", "list", "-deps", "-tags", tags, module+"/"+program) //nolint:gosec // arguments of this test
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	output, err := list.Output()
	require.NoError(t, err)
	var own []string
	for _, path := range strings.Fields(string(output)) {
		if short, is := strings.CutPrefix(path, module+"/"); is {
			own = append(own, short)
		}
	}
	return own
}

func TestHouse_WhatShipsDependsOnNothingThatDoesNot(t *testing.T) {
	for _, program := range programs {
		for _, system := range []string{"linux", "darwin"} {
			for _, path := range contents(t, program.main, system, program.tags) {
				require.False(t, withinAny(path, neverShips), "%s for %s, built with the tags %q, depends on %s", program.main, system, program.tags, path)
			}
		}
	}
	development := slices.ContainsFunc(contents(t, "cmd/bullpen", "linux", ""), func(path string) bool { return within(path, "internal/dev") })
	require.True(t, development, "without the tag production cmd/bullpen depends on nothing in internal/dev: the tag leaves nothing out")
}

// A new build is declared here, and one without the tag production that has internal/dev is noticed.
func TestHouse_OnlyTheArchiveForALaptopHasTheOneMachineMode(t *testing.T) {
	text, err := os.ReadFile("../../.goreleaser.yaml")
	require.NoError(t, err)
	var project struct {
		Builds []struct {
			ID, Main string
			Tags     []string
		}
		Archives []struct {
			ID  string
			IDs []string
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &project))
	builds := map[string]program{}
	for _, build := range project.Builds {
		builds[build.ID] = program{build.Main, strings.Join(build.Tags, ",")}
	}
	require.Equal(t, released, builds)
	for _, archive := range project.Archives {
		require.Equal(t, archive.ID == "programs", slices.Contains(archive.IDs, laptop), "the archive %s", archive.ID)
	}
	for id, build := range builds {
		for _, system := range []string{"linux", "darwin"} {
			development := slices.ContainsFunc(contents(t, strings.TrimPrefix(build.main, "./"), system, build.tags), func(path string) bool { return withinAny(path, neverShips) })
			require.Equal(t, id == laptop, development, "the build %s for %s, with the tags %q, has packages for one machine and development", id, system, build.tags)
		}
	}
}

func TestHouse_WhatDoesNotShipIsInItsPlace(t *testing.T) {
	var ships []string
	for _, program := range programs {
		ships = append(ships, contents(t, program.main, "linux", program.tags)...)
		ships = append(ships, contents(t, program.main, "darwin", program.tags)...)
	}
	own, _ := modulePackages(t)
	for path, p := range own {
		if len(p.GoFiles) > 0 && within(path, "internal") && !withinAny(path, neverShips) {
			require.Contains(t, ships, path, "no program that ships contains %s: it belongs to internal/dev or test/kit", path)
		}
	}
}

// Also where no program leads yet: no package outside of internal/dev imports one inside, except cmd/bullpen, whose tag
// decides.
func TestHouse_NoImportFromWhatShipsToWhatDoesNot(t *testing.T) {
	own, _ := modulePackages(t)
	for _, path := range slices.Sorted(maps.Keys(own)) {
		if withinAny(path, neverShips) || within(path, "cmd/bullpen") {
			continue
		}
		for _, imported := range own[path].Imports {
			require.False(t, withinAny(strings.TrimPrefix(imported, module+"/"), neverShips) && within(imported, module), "%s imports %s", path, imported)
		}
	}
}

func TestHouse_HasTheseRooms(t *testing.T) {
	entries, err := os.ReadDir("../../internal")
	require.NoError(t, err)
	var rooms []string
	for _, entry := range entries {
		rooms = append(rooms, entry.Name())
	}
	require.ElementsMatch(t, []string{"agent", "cli", "controller", "dev", "fleet", "github", "jobcontainer", "lib", "machost", "node", "plan", "runnerpod", "server"}, rooms,
		"a directory of internal/ was added or has gone: each is a process, or is named in ARCHITECTURE.md")
}
