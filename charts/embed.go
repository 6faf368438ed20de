package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"sort"
)

//go:embed bullpen/crds/*.yaml
var crds embed.FS

//go:embed rendered/*.yaml
var rendered embed.FS

//go:embed rendered/jobcontainers/*.yaml
var renderedJobContainers embed.FS

// Only who renders the chart refers to it: the linker leaves it out of the product's binary.
//
//go:embed all:bullpen
var source embed.FS

// File is one manifest: YAML that may hold several documents, separated by lines of three dashes.
type File struct {
	Name    string
	Content []byte
}

// Source is the chart's directory.
func Source() fs.FS {
	folder, err := fs.Sub(source, "bullpen")
	if err != nil {
		panic(err) // for a path that is not valid, and this one is
	}
	return folder
}

// CRDs returns the CustomResourceDefinitions, ordered by name.
func CRDs() ([]File, error) { return folder(crds, "bullpen/crds") }

// Rendered returns what the chart installs beside its workloads (the namespace of the runners, ServiceAccounts, roles and
// bindings, admission policies, the disruption budget, and network policies), for a release bullpen in the namespace bullpen-system with the
// values that the chart has. That namespace itself is not among it, because `helm install` makes it.
func Rendered() ([]File, error) { return folder(rendered, "rendered") }

// RenderedJobContainers returns what such a release has more with the value jobContainers.enabled: the controller's permissions for containers of
// jobs, the Secret for its key, and the admission policies that limit them.
func RenderedJobContainers() ([]File, error) {
	return folder(renderedJobContainers, "rendered/jobcontainers")
}

func folder(files fs.FS, path string) ([]File, error) {
	entries, err := fs.ReadDir(files, path)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded manifests in %s: %w", path, err)
	}
	found := make([]File, 0, len(entries))
	for _, entry := range entries {
		content, err := fs.ReadFile(files, path+"/"+entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the embedded manifest %s: %w", entry.Name(), err)
		}
		found = append(found, File{Name: entry.Name(), Content: content})
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found, nil
}
