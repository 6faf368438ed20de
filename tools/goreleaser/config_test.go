package goreleaser

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const (
	top      = "../../"
	manPages = "dist/man/*.1"
)

// A field that GoReleaser does not have is refused, and what the file names exists.
func TestConfig_IsRead(t *testing.T) {
	project, err := config.Load(top + ".goreleaser.yaml")
	if err != nil {
		t.Fatalf("reading .goreleaser.yaml: %v", err)
	}
	if len(project.Builds) == 0 || len(project.Archives) == 0 || len(project.SBOMs) == 0 || len(project.Signs) == 0 {
		t.Fatalf("it lacks builds, archives, SBOMs or signatures: %+v", project)
	}
	var builds []string
	for _, build := range project.Builds {
		builds = append(builds, build.ID)
		if _, err := os.Stat(top + build.Main); err != nil {
			t.Errorf("the build %s: %v", build.ID, err)
		}
	}
	for _, archive := range project.Archives {
		for _, id := range archive.IDs {
			if !slices.Contains(builds, id) {
				t.Errorf("the archive %s has a build %q, which there is not", archive.ID, id)
			}
		}
		for _, file := range archive.Files {
			if file.Source == manPages {
				continue // TestConfig_MakesManPages
			}
			if _, err := os.Stat(top + file.Source); err != nil {
				t.Errorf("the archive %s: %v", archive.ID, err)
			}
		}
	}
	if _, err := config.LoadReader(strings.NewReader("version: 2\nbuild: []\n")); err == nil {
		t.Error("a misspelled field is taken: this test holds nothing")
	}
}

// The man pages of an archive are made before, outside the directory that GoReleaser wants empty.
func TestConfig_MakesManPages(t *testing.T) {
	project, err := config.Load(top + ".goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	packed := slices.ContainsFunc(project.Archives, func(a config.Archive) bool {
		return slices.ContainsFunc(a.Files, func(f config.File) bool { return f.Source == manPages && f.Destination == "man/man1" && f.StripParent })
	})
	made := slices.ContainsFunc(project.Before.Hooks, func(hook string) bool { return strings.HasPrefix(hook, "make man ") })
	if !packed || !made || project.Dist == "" || strings.HasPrefix(manPages, project.Dist+"/") {
		t.Errorf("packed %t, made %t, in %q", packed, made, project.Dist)
	}
	makefile, err := os.ReadFile(top + "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^man: `).Match(makefile) {
		t.Error("make has no target man")
	}
}

// krew takes archives with one program each, and short descriptions.
func TestConfig_KrewsManifest(t *testing.T) {
	project, err := config.Load(top + ".goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Krews) != 1 {
		t.Fatalf("%d manifests", len(project.Krews))
	}
	krew := project.Krews[0]
	for _, archive := range project.Archives {
		if slices.Contains(krew.IDs, archive.ID) && !slices.Equal(archive.IDs, []string{"kubectl-bullpen"}) {
			t.Errorf("the archive %s has the programs %v", archive.ID, archive.IDs)
		}
	}
	if len(krew.IDs) != 1 || !slices.ContainsFunc(project.Archives, func(a config.Archive) bool { return a.ID == krew.IDs[0] }) {
		t.Errorf("it is of the archives %v", krew.IDs)
	}
	if len(krew.ShortDescription) == 0 || len(krew.ShortDescription) > 50 || krew.Description == "" || krew.Name != "bullpen" || krew.SkipUpload != "true" {
		t.Errorf("%+v", krew)
	}
	workflow, err := os.ReadFile(top + ".github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{project.Dist + "/krew/" + krew.Name + ".yaml", project.Dist + "/checksums.txt"} {
		if !strings.Contains(string(workflow), path) {
			t.Errorf("the workflow does not use %s", path)
		}
	}
}

// The workflow runs the version whose schema this is.
func TestVersion_IsThatOfTheWorkflow(t *testing.T) {
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`github.com/goreleaser/goreleaser/v2 (v\S+)`).FindSubmatch(module)
	workflow, err := os.ReadFile(top + ".github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if required == nil || !strings.Contains(string(workflow), "version: "+string(required[1])+"\n") {
		t.Errorf("go.mod requires %s, and the workflow runs another version", required)
	}
}
