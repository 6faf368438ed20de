package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"sort"
)

//go:embed bullpen/crds/*.yaml bullpen/rbac/*.yaml bullpen/admission/*.yaml
var files embed.FS

// File is one manifest: YAML that may hold several documents, separated by lines of three dashes.
type File struct {
	Name    string
	Content []byte
}

// CRDs returns the CustomResourceDefinitions, ordered by name.
func CRDs() ([]File, error) { return folder("bullpen/crds") }

// RBAC returns the namespaces, ServiceAccounts, roles and bindings, ordered by name: the namespaces come first.
func RBAC() ([]File, error) { return folder("bullpen/rbac") }

// Admission returns the admission policies, their bindings and the disruption budget, ordered by name. What a file says
// of the namespace bullpen-runners is meant for wherever the runner pods are.
func Admission() ([]File, error) { return folder("bullpen/admission") }

func folder(path string) ([]File, error) {
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
