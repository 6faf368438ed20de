package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// newSBOM lists, in CycloneDX's JSON, what the linker recorded in the image's two binaries and the one for Macs: every module
// with its version, and Go's own library. Nothing else is in the image. It carries no serial number, which would have to be random.
func newSBOM(r release, own pair, forMacs program) ([]byte, error) {
	p := own.Product
	root := cdx.Component{
		BOMRef: "pkg:golang/" + p.Info.Main.Path + "@" + r.Version, Type: cdx.ComponentTypeApplication,
		Name: "bullpen", Version: r.Version,
		PackageURL: purl(p.Info.Main.Path, r.Version),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.SHA256}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties: &[]cdx.Property{{Name: "bullpen:platform", Value: p.Platform.String()}},
	}
	goVersion := strings.TrimPrefix(p.Info.GoVersion, "go")
	components := []cdx.Component{library("stdlib", goVersion, "pkg:golang/stdlib@"+goVersion),
		fileComponent(r, agentPath, own.Agent), fileComponent(r, macPath, forMacs)}
	listed := map[string]bool{} // all are built from one go.mod: most modules are in several
	for _, module := range slices.Concat(p.Info.Deps, own.Agent.Info.Deps, forMacs.Info.Deps) {
		if module.Replace != nil {
			return nil, fmt.Errorf("module %s is replaced by %s: a release is built from published modules", module.Path, module.Replace.Path)
		}
		if !listed[module.Path] {
			listed[module.Path] = true
			components = append(components, moduleComponent(module))
		}
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.Created.Format(time.RFC3339), Component: &root}
	bom.Components = &components
	// The linker does not say which module needs which, so all are what the binary needs.
	needs := make([]string, len(components))
	for i := range components {
		needs[i] = components[i].BOMRef
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: root.BOMRef, Dependencies: &needs}}
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// fileComponent is a program of the image beside the one that the SBOM is named after.
func fileComponent(r release, path string, p program) cdx.Component {
	return cdx.Component{
		BOMRef: "/" + path, Type: cdx.ComponentTypeFile, Name: "/" + path, Version: r.Version,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.SHA256}},
		Properties: &[]cdx.Property{{Name: "bullpen:platform", Value: p.Platform.String()}},
	}
}

func library(name, version, url string) cdx.Component {
	return cdx.Component{
		BOMRef: url, Type: cdx.ComponentTypeLibrary, Scope: cdx.ScopeRequired,
		Name: name, Version: version, PackageURL: url,
	}
}

func moduleComponent(module *debug.Module) cdx.Component {
	component := library(module.Path, module.Version, purl(module.Path, module.Version))
	if module.Sum != "" {
		// The hash in go.sum. It is a hash over the hashes of files, and so not one that the format has a name for.
		component.Properties = &[]cdx.Property{{Name: "bullpen:go.sum", Value: module.Sum}}
	}
	return component
}

// purl is a module's package URL. A version may hold "+incompatible".
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}
