package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
	"github.com/xeipuuv/gojsonschema"
)

func TestSBOM_ListsWhatTheLinkerSays(t *testing.T) {
	own, forMacs := testPrograms().Own[0], testPrograms().Mac
	p := own.Product
	raw, err := newSBOM(testRelease(), own, forMacs)
	require.NoError(t, err)
	checkSchema(t, raw)
	bom := decode(t, raw)
	require.Empty(t, bom.SerialNumber, "it would differ each time")
	require.Equal(t, "2023-11-14T22:13:20Z", bom.Metadata.Timestamp)
	require.Equal(t, "pkg:golang/github.com/bullpen-ci/bullpen@v1.2.3", bom.Metadata.Component.PackageURL)
	require.Equal(t, []cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.SHA256}}, *bom.Metadata.Component.Hashes)
	require.Equal(t, []string{
		"", "", "pkg:golang/example.com/of-macs@v1.0.0", "pkg:golang/example.com/old@v3.0.0%2Bincompatible", "pkg:golang/golang.org/x/sys@v0.49.0", "pkg:golang/stdlib@1.26.8",
	}, packages(bom))
	require.Equal(t, "/bullpen-darwin-arm64", (*bom.Components)[0].Name)
	require.Equal(t, []cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: forMacs.SHA256}}, *(*bom.Components)[0].Hashes)
	require.Equal(t, "/usr/local/bin/bullpen-agent", (*bom.Components)[1].Name)
	require.Equal(t, []cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: own.Agent.SHA256}}, *(*bom.Components)[1].Hashes)
}

func TestSBOM_RefusesWhatNobodyCanLookUp(t *testing.T) {
	for _, spoil := range []func(*programs) *program{
		func(all *programs) *program { return &all.Own[0].Product },
		func(all *programs) *program { return &all.Own[0].Agent },
		func(all *programs) *program { return &all.Mac },
	} {
		all := testPrograms()
		spoilt := spoil(&all)
		spoilt.Info.Deps = []*debug.Module{{Path: "golang.org/x/sys", Version: "v0.49.0", Replace: &debug.Module{Path: "../mine"}}}
		_, err := newSBOM(testRelease(), all.Own[0], all.Mac)
		require.ErrorContains(t, err, "golang.org/x/sys is replaced by ../mine")
	}
}

func decode(t *testing.T, raw []byte) cdx.BOM {
	t.Helper()
	var bom cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(raw), cdx.BOMFileFormatJSON).Decode(&bom))
	return bom
}

func packages(bom cdx.BOM) []string {
	var urls []string
	for _, component := range *bom.Components {
		urls = append(urls, component.PackageURL)
	}
	return urls
}

// checkSchema asks the schema that CycloneDX publishes, which comes with its library.
func checkSchema(t *testing.T, raw []byte) {
	t.Helper()
	output, err := exec.CommandContext(limited(t), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	require.NoError(t, err)
	dir := filepath.Join(strings.TrimSpace(string(output)), "schema")
	loader := gojsonschema.NewSchemaLoader()
	for _, name := range []string{"spdx.schema.json", "jsf-0.82.schemax.json"} {
		require.NoError(t, loader.AddSchemas(gojsonschema.NewReferenceLoader("file://"+filepath.Join(dir, name))))
	}
	schema, err := loader.Compile(gojsonschema.NewReferenceLoader("file://" + filepath.Join(dir, "bom-1.6.schema.json")))
	require.NoError(t, err)
	result, err := schema.Validate(gojsonschema.NewBytesLoader(raw))
	require.NoError(t, err)
	require.Empty(t, result.Errors())

	var spoilt map[string]any
	require.NoError(t, json.Unmarshal(raw, &spoilt))
	spoilt["bomFormat"] = "another"
	result, err = schema.Validate(gojsonschema.NewGoLoader(spoilt))
	require.NoError(t, err)
	require.NotEmpty(t, result.Errors(), "the schema refuses something")
}
