package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"sort"
)

//go:embed bullpen/crds/*.yaml bullpen/rbac/*.yaml
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
