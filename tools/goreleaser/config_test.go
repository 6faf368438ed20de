package goreleaser

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const top = "../../"

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
			if _, err := os.Stat(top + file.Source); err != nil {
				t.Errorf("the archive %s: %v", archive.ID, err)
			}
		}
	}
	if _, err := config.LoadReader(strings.NewReader("version: 2\nbuild: []\n")); err == nil {
		t.Error("a misspelled field is taken: this test holds nothing")
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
