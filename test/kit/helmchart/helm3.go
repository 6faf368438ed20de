package helmchart

import (
	"fmt"
	"io/fs"
	"slices"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/bullpen-ci/bullpen/charts"
)

// RenderHelm3 is Render by the engine of Helm 3, for the same version of Kubernetes.
func RenderHelm3(r Release) ([]Manifest, error) {
	r = r.withDefaults()
	loaded, err := loadHelm3(charts.Source())
	if err != nil {
		return nil, err
	}
	kube := common.DefaultCapabilities.KubeVersion
	capabilities := &chartutil.Capabilities{
		KubeVersion: chartutil.KubeVersion{Version: kube.Version, Major: kube.Major, Minor: kube.Minor},
		APIVersions: append(slices.Clone(chartutil.DefaultVersionSet), r.APIVersions...), HelmVersion: chartutil.DefaultCapabilities.HelmVersion,
	}
	values, err := chartutil.ToRenderValues(loaded, r.Values, chartutil.ReleaseOptions{
		Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: !r.Upgrade, IsUpgrade: r.Upgrade,
	}, capabilities)
	if err != nil {
		return nil, fmt.Errorf("checking the values: %w", err)
	}
	var rendered map[string]string
	if r.Template {
		rendered, err = engine.Render(loaded, values)
	} else {
		rendered, err = engine.RenderWithClientProvider(loaded, values, anyCluster{})
	}
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w", err)
	}
	return manifestsOf(loaded.Name(), rendered), nil
}

func loadHelm3(source fs.FS) (*chart.Chart, error) {
	var files []*loader.BufferedFile
	err := eachFile(source, func(name string, data []byte) { files = append(files, &loader.BufferedFile{Name: name, Data: data}) })
	if err != nil {
		return nil, err
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	return loaded, nil
}
