package arcmigration

import (
	"regexp"
	"slices"
	"strings"
)

var (
	systemKeys       = []string{"kubernetes.io/os", "beta.kubernetes.io/os"}
	architectureKeys = []string{"kubernetes.io/arch", "beta.kubernetes.io/arch"}

	// windowsImage knows images for Windows by what Microsoft, and others after it, call them.
	windowsImage = regexp.MustCompile(`(?i)(^|[^a-z])(windows|windowsservercore|servercore|nanoserver|ltsc20\d\d)([^a-z]|$)`)
	// windowsLabel knows the labels of Windows runners: windows, windows-2022, windows_x64, and not windows-ui-tests.
	windowsLabel = regexp.MustCompile(`(?i)^win(dows)?([-_.]?(server|latest|20\d\d|1[01]|x64|x86|amd64|arm64)([-_.].*)?)?$`)
	// windowsPath is a path or a program that only Windows has.
	windowsPath = regexp.MustCompile(`(?i)^([a-z]:[\\/]|(cmd|powershell|pwsh)\.exe$)`)
)

// windows says whether a pod wants a node with Windows, which no kind of Bullpen's has, and fails then: a pod for Linux would be put on such
// a node, or the other way round. pod is where the fields of a pod are, labels and containers those of the runner wherever they are written.
func (c *conversion) windows(pod *value, labels, containers []*value) bool {
	found := wantsNode(pod, systemKeys, "windows")
	for _, toleration := range pod.get("tolerations").elements() {
		key := toleration.get("key").peek()
		if found == nil && (key == "os" || strings.HasSuffix(key, "kubernetes.io/os")) && strings.EqualFold(toleration.get("value").peek(), "windows") {
			found = toleration
		}
	}
	if os := pod.get("os", "name"); found == nil && strings.EqualFold(os.peek(), "windows") {
		found = os
	}
	if options := pod.get("securityContext", "windowsOptions"); found == nil && options != nil && !options.leaf() {
		found = options
	}
	for _, label := range labels {
		if found == nil && windowsLabel.MatchString(label.peek()) {
			found = label
		}
	}
	for _, container := range containers {
		if found == nil {
			found = container.windows()
		}
	}
	if found == nil {
		return false
	}
	c.fail(found, "it requires Windows, and Bullpen's runners are Linux and macOS", "keep these runners in actions-runner-controller")
	return true
}

// windows finds in a container what only Windows has.
func (v *value) windows() *value {
	if image := v.get("image"); windowsImage.MatchString(image.peek()) {
		return image
	}
	if options := v.get("securityContext", "windowsOptions"); options != nil && !options.leaf() {
		return options
	}
	for _, list := range []*value{v.get("command"), v.get("args")} {
		for _, word := range list.elements() {
			if windowsPath.MatchString(word.peek()) {
				return word
			}
		}
	}
	for _, mount := range v.get("volumeMounts").elements() {
		if at := mount.get("mountPath"); windowsPath.MatchString(at.peek()) {
			return at
		}
	}
	return nil
}

// wantsNode finds where a pod says that its nodes must have a label of this value: in its nodeSelector, or in each term of its affinity.
func wantsNode(pod *value, keys []string, wanted string) *value {
	for _, key := range keys {
		if v := pod.get("nodeSelector", key); strings.EqualFold(v.peek(), wanted) {
			return v
		}
	}
	var found *value
	terms := pod.get("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").elements()
	for _, term := range terms {
		at := termWants(term, keys, wanted)
		if at == nil { // the terms are alternatives
			return nil
		}
		found = at
	}
	return found
}

func termWants(term *value, keys []string, wanted string) *value {
	for _, expression := range term.get("matchExpressions").elements() {
		values := expression.get("values").elements()
		is := func(v *value) bool { return strings.EqualFold(v.peek(), wanted) }
		if expression.get("operator").peek() == "In" && slices.Contains(keys, expression.get("key").peek()) && len(values) > 0 &&
			!slices.ContainsFunc(values, func(v *value) bool { return !is(v) }) {
			return expression
		}
	}
	return nil
}

// architectures are GitHub's labels for them, by Kubernetes' names.
var architectures = []struct{ name, label string }{{"amd64", "X64"}, {"arm64", "ARM64"}, {"arm", "ARM"}}

// arm64Image knows images that are for one architecture by their names.
var arm64Image = regexp.MustCompile(`(?i)(^|[^a-z0-9])(arm64|aarch64|arm64v8)([^a-z0-9]|$)`)

// architecture is GitHub's label for that of a pod's nodes, and where it is said; X64 and nil where it is not.
func architecture(pod *value, images ...*value) (string, *value) {
	for _, of := range architectures {
		if at := wantsNode(pod, architectureKeys, of.name); at != nil {
			return of.label, at
		}
	}
	for _, image := range images {
		if arm64Image.MatchString(image.peek()) {
			return "ARM64", image
		}
	}
	return "X64", nil
}

// systemLabels are those that GitHub's config.sh gives a runner by itself.
var systemLabels = []string{"self-hosted", "linux", "x64", "arm64", "arm"}

// architectureLabels are those of systemLabels of which a runner has one.
var architectureLabels = systemLabels[2:]
