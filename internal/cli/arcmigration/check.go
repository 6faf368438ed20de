package arcmigration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// longestNames are what the kinds' rules say.
var longestNames = map[string]int{
	v1alpha1.KindRunner: 58, v1alpha1.KindRunnerReplicaSet: 50, v1alpha1.KindRunnerDeployment: 40, v1alpha1.KindRunnerSet: 40,
	v1alpha1.KindRunnerPool: 50,
}

var dashedName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// check looks whether an API server would take what was made: by the schema that the chart installs, and by those of its rules
// that a converted object could break.
func (c *conversion) check() {
	for _, problem := range kindSchemas()[c.kind].problems(c.made, "") {
		c.find(Failed, c.origin(problem.path), "in the "+c.kind+" that it would become, "+problem.path+problem.text, "")
	}
	c.checkName()
	spec, _ := c.made["spec"].(fields)
	if c.kind == v1alpha1.KindRunnerPool {
		c.checkPool(spec)
	} else {
		c.checkRunner(c.registered(), c.registeredPath())
	}
	c.checkPod()
	scaling, _ := spec["autoscaling"].(fields)
	least, hasLeast := number(scaling["minReplicas"])
	if most, ok := number(scaling["maxReplicas"]); ok && hasLeast && least > most {
		c.find(Failed, c.origin("spec.autoscaling.minReplicas"), fmt.Sprintf("minReplicas (%v) is more than maxReplicas (%v)", least, most), "raise maxReplicas, or lower minReplicas")
	}
}

func (c *conversion) checkName() {
	meta, _ := c.made["metadata"].(fields)
	name, _ := meta["name"].(string)
	if most := longestNames[c.kind]; len(name) > most {
		c.find(Failed, c.nameAt(), fmt.Sprintf("the name of a %s has at most %d characters, because its runners are named after it; this one has %d", c.kind, most, len(name)),
			"choose a shorter name")
	}
	if !dashedName.MatchString(name) {
		c.find(Failed, c.nameAt(), fmt.Sprintf("the name of a %s may only have lower-case letters, digits and dashes, because pods are named after it", c.kind),
			"choose another name, without dots")
	}
	if namespace, ok := meta["namespace"].(string); ok && (len(namespace) > 63 || !dashedName.MatchString(namespace)) {
		c.find(Failed, c.origin("metadata.namespace"), "not a valid name of a namespace", "")
	}
	for _, kind := range []string{"labels", "annotations"} {
		marks, _ := meta[kind].(fields)
		for _, key := range sorted(marks) {
			if problem := markProblem(kind, key, marks[key].(string)); problem != "" {
				c.find(Failed, c.marksAt(kind, key), fmt.Sprintf("%q %s", key, problem), "")
			}
		}
	}
}

// nameAt is where the name of what is made is written.
func (c *conversion) nameAt() *value {
	if c.values != nil {
		return c.values.place("runnerScaleSetName")
	}
	return c.root.place("metadata", "name")
}

// marksAt is where a label or an annotation is written.
func (c *conversion) marksAt(kind, key string) *value {
	if c.values != nil {
		return c.values.place(kind, key)
	}
	return c.root.place("metadata", kind, key)
}

// registeredPath is the path of what registered is.
func (c *conversion) registeredPath() string {
	if c.kind == v1alpha1.KindRunnerSet || c.kind == v1alpha1.KindRunner {
		return "spec"
	}
	return "spec.template.spec"
}

func (c *conversion) checkRunner(spec fields, at string) {
	places, last := 0, "repository"
	for _, name := range []string{"enterprise", "organization", "repository"} {
		if spec[name] != nil {
			places, last = places+1, name
		}
	}
	if places != 1 {
		where := c.origin(at + "." + last)
		if places == 0 {
			where = c.origin(at).place(last)
		}
		c.find(Failed, where, fmt.Sprintf("a runner registers in one place, and this one has %d", places), "set exactly one of enterprise, organization and repository")
	}
	kubernetes, _ := spec["kubernetes"].(fields)
	claim, _ := kubernetes["workVolumeClaim"].(fields)
	modes, _ := claim["accessModes"].([]any)
	if kubernetes != nil && (len(modes) == 0 || modes[0] != "ReadWriteOnce" && modes[0] != "ReadWriteMany") {
		c.find(Failed, c.origin(at+".kubernetes.workVolumeClaim.accessModes"), "the runner and its jobs' pods both write to the work volume", "set the first of accessModes to ReadWriteOnce or ReadWriteMany")
	}
}

var reservedLabels = []string{"self-hosted", "linux", "macos", "windows", "x64", "arm64", "arm"}

func (c *conversion) checkPool(spec fields) {
	template, _ := spec["template"].(fields)
	labels, _ := spec["labels"].([]any)
	if first, _ := labels[0].(string); slices.Contains(reservedLabels, strings.ToLower(first)) {
		c.find(Failed, c.origin("spec.labels[0]"), "the name of the scale set is the label that workflows use in runs-on, and "+first+" cannot belong to one pool only", "choose another name, such as linux-4cpu, or convert with --to RunnerDeployment, whose runners share such labels")
	}
	selector, _ := template["nodeSelector"].(fields)
	if system := selector["kubernetes.io/os"]; system != nil && system != "linux" {
		c.find(Failed, c.origin(`spec.template.nodeSelector["kubernetes.io/os"]`), fmt.Sprintf("the runners need nodes with %v, but those of the pool are for linux", system), "")
	}
	resources, _ := spec["resources"].(fields)
	if cpu, err := resource.ParseQuantity(fmt.Sprint(resources["cpu"])); err != nil || cpu.Sign() <= 0 {
		c.find(Failed, c.origin("spec.resources.cpu"), "the CPUs of the container runner must be more than 0", "")
	}
	if memory, err := resource.ParseQuantity(fmt.Sprint(resources["memory"])); err != nil || memory.Cmp(resource.MustParse("1Mi")) < 0 {
		c.find(Failed, c.origin("spec.resources.memory"), "the memory of the container runner must be at least 1Mi", "write the unit, such as 16Gi")
	}
	if disk, err := resource.ParseQuantity(fmt.Sprint(resources["ephemeralStorage"])); err == nil && !disk.IsZero() && disk.Cmp(resource.MustParse("1Gi")) < 0 {
		c.find(Failed, c.origin("spec.resources.ephemeralStorage"), "the ephemeral-storage of the container runner must be at least 1Gi", "write the unit, such as 20Gi")
	}
	for _, rule := range []struct{ list, key, prefix, why string }{
		{"env", "name", "BULLPEN_", "environment variables that begin with BULLPEN_ are reserved for the agent in the pod"},
		{"volumes", "name", "bullpen-", "volume names that begin with bullpen- are reserved for the controller"},
		{"volumeMounts", "name", "bullpen-", "volume names that begin with bullpen- are reserved for the controller"},
	} {
		list, _ := template[rule.list].([]any)
		for i, entry := range list {
			entry, _ := entry.(fields)
			if name, _ := entry[rule.key].(string); strings.HasPrefix(name, rule.prefix) {
				c.find(Failed, c.origin(itemPath("spec.template."+rule.list, i)), rule.why+": "+name, "choose another name")
			}
		}
	}
	scaling, _ := spec["autoscaling"].(fields)
	least, _ := number(scaling["minIdle"])
	if most, ok := number(scaling["maxReplicas"]); ok && least > most {
		c.find(Failed, c.origin("spec.autoscaling.minIdle"), "minRunners is more than maxRunners", "")
	}
}
