package arcmigration

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// checkPod makes a pod as the controller would, and repeats what that says. The object is good, and has no runners until that
// has been seen to.
func (c *conversion) checkPod() {
	if c.failed() {
		return
	}
	err := c.buildPod(c.made)
	var refused *runnerpod.InvalidTemplateError
	switch {
	case errors.As(err, &refused):
		c.todo(c.origin(c.refusedFor()), "no pod can be built from it: "+refused.Error(), "")
	case err != nil:
		c.find(Failed, nil, "the "+c.kind+" that it would become cannot be read: "+err.Error(), "")
	}
}

// podPath is the path of the pod's fields in what is made.
func (c *conversion) podPath() string {
	if c.kind == v1alpha1.KindRunnerPool {
		return "spec.template"
	}
	return c.registeredPath() + ".template.spec"
}

func (c *conversion) buildPod(made fields) error {
	content, err := json.Marshal(made)
	if err != nil {
		return err
	}
	options := runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent"}
	if c.options.RuntimeClass != "" {
		options.MicroVMClasses = append(runnerpod.DefaultMicroVMClasses(), c.options.RuntimeClass)
	}
	if c.kind == v1alpha1.KindRunnerPool {
		var pool v1alpha1.RunnerPool
		if err := json.Unmarshal(content, &pool); err != nil {
			return err
		}
		_, _, err := runnerpod.Build(&pool, options, "00000000")
		return err
	}
	set := v1alpha1.RunnerSet{}
	if spec := &set.Spec.RunnerSpec; c.kind == v1alpha1.KindRunnerSet {
		err = json.Unmarshal(content, &set)
	} else if content, err = json.Marshal(c.registeredIn(made)); err == nil {
		err = json.Unmarshal(content, spec)
	}
	if err != nil {
		return err
	}
	one := runnerpod.Registered{Name: "runner", Secret: "runner", Spec: &set.Spec.RunnerSpec, StatefulSet: c.kind == v1alpha1.KindRunnerSet}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		one.Claims = append(one.Claims, claim.Name)
	}
	_, err = runnerpod.BuildRegistered(one, options)
	return err
}

// refusedFor is the path of the part that the controller refuses a pod for: the one without which it would make one. Where that is no single
// part, it is the path of the pod.
func (c *conversion) refusedFor() string {
	at := c.podPath()
	pod := c.podIn(c.made)
	for _, key := range sorted(pod) {
		if key != "containers" && key != "volumes" && key != "volumeMounts" && c.allowedWithout(func(pod fields) { delete(pod, key) }) {
			return childPath(at, key)
		}
	}
	for i, volume := range entries(pod, "volumes") {
		if c.allowedWithout(func(pod fields) { removeVolume(pod, volume["name"]) }) {
			return itemPath(childPath(at, "volumes"), i)
		}
	}
	for _, list := range []string{"containers", "initContainers"} {
		for i, container := range entries(pod, list) {
			below := itemPath(childPath(at, list), i)
			if mount := c.refusedMount(container, func(pod fields) fields { return entries(pod, list)[i] }); mount >= 0 {
				return itemPath(childPath(below, "volumeMounts"), mount)
			}
			for _, key := range sorted(container) {
				if c.allowedWithout(func(pod fields) { delete(entries(pod, list)[i], key) }) {
					return childPath(below, key)
				}
			}
		}
	}
	if mount := c.refusedMount(pod, func(pod fields) fields { return pod }); mount >= 0 { // of a pool's one container
		return itemPath(childPath(at, "volumeMounts"), mount)
	}
	return at
}

// refusedMount is the index of the mount of a container that a pod is refused for, or -1. find finds the container in a pod.
func (c *conversion) refusedMount(container fields, find func(pod fields) fields) int {
	for i := range entries(container, "volumeMounts") {
		if c.allowedWithout(func(pod fields) {
			of := find(pod)
			of["volumeMounts"] = slices.Delete(of["volumeMounts"].([]any), i, i+1)
		}) {
			return i
		}
	}
	return -1
}

// allowedWithout says whether the controller would make a pod after something was taken out.
func (c *conversion) allowedWithout(takeOut func(pod fields)) bool {
	content, err := json.Marshal(c.made)
	if err != nil {
		return false
	}
	var changed fields
	if json.Unmarshal(content, &changed) != nil {
		return false
	}
	takeOut(c.podIn(changed))
	return c.buildPod(changed) == nil
}

// podIn is what of a made object has the fields of a pod.
func (c *conversion) podIn(made fields) fields {
	if c.kind == v1alpha1.KindRunnerPool {
		spec, _ := made["spec"].(fields)
		template, _ := spec["template"].(fields)
		return template
	}
	template, _ := c.registeredIn(made)["template"].(fields)
	spec, _ := template["spec"].(fields)
	return spec
}

// entries are those of a list of mappings.
func entries(of fields, list string) []fields {
	var found []fields
	items, _ := of[list].([]any)
	for _, item := range items {
		entry, _ := item.(fields)
		found = append(found, entry)
	}
	return found
}

// removeVolume takes a volume out of a pod, and what mounts it.
func removeVolume(pod fields, name any) {
	remove := func(of fields, list string) {
		if items, ok := of[list].([]any); ok {
			of[list] = slices.DeleteFunc(items, func(item any) bool {
				entry, _ := item.(fields)
				return entry["name"] == name
			})
		}
	}
	remove(pod, "volumes")
	remove(pod, "volumeMounts")
	for _, list := range []string{"containers", "initContainers"} {
		for _, container := range entries(pod, list) {
			remove(container, "volumeMounts")
		}
	}
}
