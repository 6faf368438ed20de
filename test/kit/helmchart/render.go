package helmchart

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/bullpen-ci/bullpen/charts"
)

// Release says what the chart is rendered for.
type Release struct {
	// Name and Namespace of the release. The defaults are bullpen and bullpen-system.
	Name, Namespace string
	// Values beside those of values.yaml, nested as there. Numbers are float64, as Helm reads them.
	Values map[string]any
	// APIVersions are served beside Kubernetes' own.
	APIVersions []string
	// Upgrade renders for `helm upgrade`, and not for `helm install`.
	Upgrade bool
	// Template renders as `helm template` does, and Argo CD: there is no cluster to look into.
	Template bool
}

// Manifest is what one template has become.
type Manifest struct {
	// Path of the template within the chart, such as templates/rbac/server.yaml.
	Path    string
	Content string
}

// Render is what Helm does before it installs: it checks the values by their schema, and returns every template that rendered to something,
// hooks and notes included, ordered by path.
func Render(r Release) ([]Manifest, error) {
	r = r.withDefaults()
	loaded, err := load(charts.Source())
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, r.APIVersions...)
	values, err := util.ToRenderValues(loaded, r.Values, common.ReleaseOptions{
		Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: !r.Upgrade, IsUpgrade: r.Upgrade,
	}, capabilities)
	if err != nil {
		return nil, fmt.Errorf("checking the values: %w", err)
	}
	rendered, err := r.engine(loaded, values)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w", err)
	}
	return manifestsOf(loaded.Name(), rendered), nil
}

func (r Release) withDefaults() Release {
	r.Name, r.Namespace = cmp.Or(r.Name, "bullpen"), cmp.Or(r.Namespace, "bullpen-system")
	return r
}

// manifestsOf orders what a chart's templates rendered to, without those that rendered to nothing.
func manifestsOf(chart string, rendered map[string]string) []Manifest {
	var manifests []Manifest
	for path, content := range rendered {
		if strings.TrimSpace(content) == "" {
			continue
		}
		manifests = append(manifests, Manifest{Path: strings.TrimPrefix(path, chart+"/"), Content: content})
	}
	slices.SortFunc(manifests, func(a, b Manifest) int { return strings.Compare(a.Path, b.Path) })
	return manifests
}

func (r Release) engine(loaded *chart.Chart, values common.Values) (map[string]string, error) {
	if r.Template {
		return engine.Render(loaded, values)
	}
	return engine.RenderWithClientProvider(loaded, values, anyCluster{})
}

// anyCluster has every object that a template may look up, as a cluster has the namespaces of Kubernetes itself.
type anyCluster struct {
	dynamic.NamespaceableResourceInterface
}

func (c anyCluster) GetClientFor(_, _ string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return c, false, nil
}

func (anyCluster) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}, nil
}

func load(source fs.FS) (*chart.Chart, error) {
	var files []*archive.BufferedFile
	err := eachFile(source, func(name string, data []byte) { files = append(files, &archive.BufferedFile{Name: name, Data: data}) })
	if err != nil {
		return nil, err
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	return loaded, nil
}

// eachFile reads the files of a chart.
func eachFile(source fs.FS, do func(name string, data []byte)) error {
	err := fs.WalkDir(source, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(source, path)
		do(path, data)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	return nil
}

// Under returns the manifests of templates whose path begins with one of the prefixes.
func Under(manifests []Manifest, prefixes ...string) []Manifest {
	return slices.DeleteFunc(slices.Clone(manifests), func(m Manifest) bool {
		return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(m.Path, prefix) })
	})
}

// Objects reads the objects of manifests, in their order; the notes are none.
func Objects(manifests []Manifest) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, manifest := range manifests {
		if strings.HasSuffix(manifest.Path, ".txt") {
			continue
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest.Content)), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading what %s has become: %w", manifest.Path, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}
