package arcmigration_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

// described reports whether a document could be read.
func described(result *arcmigration.Result, number int) bool {
	return len(result.Problems) == 0 || slices.ContainsFunc(result.Objects, func(object arcmigration.Object) bool { return object.Document == number })
}

// spokenOfItem reports whether the report speaks of the entry of a list that the path is in, as one that is changed.
func spokenOfItem(object arcmigration.Object, path string) bool {
	for _, finding := range object.Findings {
		if finding.Path != "" && strings.HasSuffix(finding.Path, "]") && strings.HasPrefix(path, finding.Path+".") {
			return true
		}
	}
	return false
}

const intruder = "aFieldThatNoVersionHas"

// mappings are all mappings of a document, by another reader than the converter's own.
func mappings(node *yaml.Node, path string, found map[string]*yaml.Node) {
	switch node.Kind {
	case yaml.DocumentNode:
		mappings(node.Content[0], path, found)
	case yaml.MappingNode:
		found[path] = node
		for i := 0; i+1 < len(node.Content); i += 2 {
			below := strings.TrimPrefix(path+"."+node.Content[i].Value, ".")
			if strings.ContainsAny(node.Content[i].Value, "./") {
				below = fmt.Sprintf("%s[%q]", path, node.Content[i].Value)
			}
			mappings(node.Content[i+1], below, found)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			mappings(item, fmt.Sprintf("%s[%d]", path, i), found)
		}
	}
}

// In whatever mapping of whatever manifest a field is that no version has: it is in what was made (as labels are), or a finding names it, or what
// it lies in as a whole. So there is no place in a manifest where something can be lost in silence.
func TestConvert_M11_NothingIsLostWhereverItIs(t *testing.T) {
	tried := 0
	for name, content := range examples(t) {
		documents := decoded(content)
		for number, document := range documents {
			places := map[string]*yaml.Node{}
			mappings(document, "", places)
			for path, at := range places {
				intact := at.Content
				at.Content = append(append([]*yaml.Node{}, intact...), &yaml.Node{Kind: yaml.ScalarNode, Value: intruder}, &yaml.Node{Kind: yaml.ScalarNode, Value: "x"})
				changed := encoded(t, documents)
				at.Content = intact
				tried++
				requireSpokenOf(t, name, number+1, path, changed)
			}
		}
	}
	require.Greater(t, tried, 500)
}

// decoded are the documents of a file, up to one that is no YAML.
func decoded(content []byte) []*yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var documents []*yaml.Node
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return documents
		}
		documents = append(documents, &document)
	}
}

func encoded(t *testing.T, documents []*yaml.Node) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	for _, document := range documents {
		require.NoError(t, encoder.Encode(document))
	}
	require.NoError(t, encoder.Close())
	return text.Bytes()
}

func requireSpokenOf(t *testing.T, name string, number int, path string, content []byte) {
	t.Helper()
	result := arcmigration.Convert([]arcmigration.Input{{Name: name, Content: content}}, arcmigration.Options{})
	if strings.Contains(output(t, result), intruder) {
		return
	}
	at := strings.TrimPrefix(path+"."+intruder, ".")
	items := false
	for _, object := range result.Objects {
		if object.Document != number {
			continue
		}
		items = items || strings.HasPrefix(object.Item, "items[")
		inItem := strings.TrimPrefix(strings.TrimPrefix(at, object.Item), ".")
		if object.Item != "" && !strings.HasPrefix(at, object.Item) && items {
			continue
		}
		carried := object.Outcome == arcmigration.Converted || object.Outcome == arcmigration.Merged
		if !carried || spokenOf(object, inItem) || spokenOf(object, at) || spokenOfItem(object, at) {
			return
		}
	}
	if !described(result, number) || items && !strings.Contains(path, "spec") { // of a List itself
		return
	}
	if elsewhere.MatchString(path) {
		return
	}
	require.Failf(t, "lost in silence", "%s in document %d of %s:\n%s", at, number, name, content)
}

const marker = "zz-marker-zz"

// scalars are all texts of a document, as mappings finds mappings.
func scalars(node *yaml.Node, path string, found map[string]*yaml.Node) {
	switch node.Kind {
	case yaml.DocumentNode:
		scalars(node.Content[0], path, found)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			below := strings.TrimPrefix(path+"."+node.Content[i].Value, ".")
			if strings.ContainsAny(node.Content[i].Value, "./") {
				below = fmt.Sprintf("%s[%q]", path, node.Content[i].Value)
			}
			scalars(node.Content[i+1], below, found)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			scalars(item, fmt.Sprintf("%s[%d]", path, i), found)
		}
	case yaml.ScalarNode:
		if node.ShortTag() == "!!str" && node.Value != "" {
			found[path] = node
		}
	}
}

// decides are the fields whose values are neither carried over nor reported, because all that they say is in what was made of the fields
// that they decide about.
var decides = regexp.MustCompile(`(^|\.)(releaseName|targetNamespace|namespace|namespaceOverride)$` +
	`|volumes\[\d+\]\.name$` + // of the volume of container mode kubernetes
	`|metadata\.name$` + // of what installs a chart
	`|[cC]ontainers\[\d+\]\.name$` + // of a Docker daemon
	`|parameters\[\d+\]\.name$` + // of whose value a finding speaks
	`|^(apiVersion|kind)$`) // of a List

// elsewhere are the fields that name other places where values are; what is in them is seen to as a whole.
var elsewhere = regexp.MustCompile(`(valuesFrom|valueFiles|valuesFiles|valuesSecrets|fileParameters)\[\d+\]`)

// Whatever a text of a manifest says: it is in what was made, or a finding speaks of the very field or of what it lies in. So no converter takes a value,
// and does nothing with it.
func TestConvert_M11_NoValueIsTakenForNothing(t *testing.T) {
	tried := 0
	for name, content := range examples(t) {
		documents := decoded(content)
		for number, document := range documents {
			places := map[string]*yaml.Node{}
			scalars(document, "", places)
			for path, at := range places {
				intact := at.Value
				at.Value = marker
				changed := encoded(t, documents)
				at.Value = intact
				tried++
				requireValueSpokenOf(t, name, number+1, path, changed)
			}
		}
	}
	require.Greater(t, tried, 500)
}

func requireValueSpokenOf(t *testing.T, name string, number int, path string, content []byte) {
	t.Helper()
	result := arcmigration.Convert([]arcmigration.Input{{Name: name, Content: content}}, arcmigration.Options{})
	if strings.Contains(output(t, result), marker) || decides.MatchString(path) || elsewhere.MatchString(path) {
		return
	}
	for _, object := range result.Objects {
		if object.Document != number || object.Item != "" && !strings.HasPrefix(path, object.Item) && strings.HasPrefix(object.Item, "items[") {
			continue
		}
		if object.Outcome != arcmigration.Converted && object.Outcome != arcmigration.Merged {
			return
		}
		inItem := strings.TrimPrefix(strings.TrimPrefix(path, object.Item), ".")
		for _, finding := range object.Findings {
			if finding.Path == path || finding.Path == inItem {
				return
			}
		}
		if spokenOf(object, inItem) || spokenOf(object, path) || spokenOfItem(object, path) {
			return
		}
	}
	if !described(result, number) {
		return
	}
	require.Failf(t, "taken for nothing", "%s in document %d of %s:\n%s", path, number, name, content)
}

// What is made of our corpus is what the kinds of Bullpen have, no field more, and each file of it is converted.
func TestConvert_TheCorpusBecomesWhatTheKindsHave(t *testing.T) {
	files := 0
	for name, content := range examples(t) {
		if !strings.HasPrefix(name, "corpus/") {
			continue
		}
		files++
		result := arcmigration.Convert([]arcmigration.Input{{Name: name, Content: content}}, arcmigration.Options{Namespace: "bullpen-runners"})
		require.False(t, result.Failed(), "%s: %+v", name, result.Objects)
		text := output(t, result)
		require.NotEmpty(t, text, name)
		for _, document := range strings.Split(text, "\n---\n") {
			var kind struct{ Kind string }
			require.NoError(t, sigsyaml.Unmarshal([]byte(document), &kind))
			object := map[string]any{
				v1alpha1.KindRunner: &v1alpha1.Runner{}, v1alpha1.KindRunnerReplicaSet: &v1alpha1.RunnerReplicaSet{}, v1alpha1.KindRunnerDeployment: &v1alpha1.RunnerDeployment{},
				v1alpha1.KindRunnerSet: &v1alpha1.RunnerSet{}, v1alpha1.KindRunnerPool: &v1alpha1.RunnerPool{},
			}[kind.Kind]
			require.NotNil(t, object, document)
			require.NoError(t, sigsyaml.UnmarshalStrict([]byte(document), object), document)
		}
	}
	require.GreaterOrEqual(t, files, 30)
}
