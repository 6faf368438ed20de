package runnerpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// hashVersion is raised when a change of this package must reach pods that already exist. It is not derived from the code:
// an upgrade of the controller alone must not roll every pool. dindHashVersion is that of pools with a Docker daemon, whose
// pods of version 1 cannot read their token. Pods without a limit on their disk differ by the default limit
// (docs/adr/0042).
const (
	hashVersion     = 1
	dindHashVersion = 2
)

// formerAgentCommand was DefaultAgentCommand when hashes were first computed.
const formerAgentCommand = "/usr/local/bin/bullpen"

// hashedAgentCommand is the agent's path as hashes have it. The default keeps the value that it had before runner pods
// started a binary of their own: existing pods are equivalent, and a change of this package must not replace them.
func (o Options) hashedAgentCommand() string {
	if command := o.agentCommand(); command != DefaultAgentCommand {
		return command
	}
	return formerAgentCommand
}

// TemplateHash tells pods of different templates apart. It covers what shapes a pod and can be changed by a person:
// the template, the resources and the installation's options. Labels, replicas and queueing are not in it: they are
// read when a job is dispatched. Equal quantities hash equally however they are written, and so do defaults.
func TemplateHash(pool *v1alpha1.RunnerPool, options Options) (string, error) {
	options = options.on(pool.Spec.Platform)
	options.AgentCommand = options.hashedAgentCommand()
	template, version := pool.Spec.Template.DeepCopy(), hashVersion
	if len(template.Command) == 0 {
		template.Command = defaultCommand(pool.Spec.Platform)
	}
	if template.Dind != nil {
		version = dindHashVersion
		*template.Dind = dindDefaults(template.Dind)
		template.Dind.Resources = plainly(template.Dind.Resources)
		template.Dind.Storage = resource.NewQuantity(template.Dind.Storage.Value(), resource.BinarySI)
	}
	if template.Build == v1alpha1.BuildWithBuildKit {
		template.BuildKit = buildKitDefaults(template.BuildKit)
		template.BuildKit.Resources = plainly(template.BuildKit.Resources)
		template.BuildKit.Storage = resource.NewQuantity(template.BuildKit.Storage.Value(), resource.BinarySI)
	}
	template.AgentResources = plainly(template.AgentResources)
	if template.UserAssignment == v1alpha1.UserFromTemplate {
		template.UserAssignment = "" // the default
	}
	key := ""
	if template.JobContainers != nil {
		template.JobContainers, key = shapeOfContainers(template.JobContainers), options.JobContainersKey
	}
	var platform v1alpha1.Platform // empty for linux, whose pods were made before it was part of the hash
	share := poolDisk(pool)
	limit := share.runner.Value()
	if pool.Spec.Platform == v1alpha1.PlatformMacOS {
		platform, limit = pool.Spec.Platform, 0
	}
	// The grace period does not shape what a runner is; a warm pod with the older one is as good.
	template.TerminationGracePeriodSeconds = nil
	shape, err := json.Marshal(struct {
		Version   int
		Options   Options
		CPU       int64
		Memory    int64
		Template  *v1alpha1.RunnerTemplate
		TokenLife int
		Platform  v1alpha1.Platform `json:",omitempty"`
		// Architecture is empty for pools that were made before it was part of the hash.
		Architecture v1alpha1.Architecture `json:",omitempty"`
		Disk         int64                 `json:",omitempty"` // TEN-6; pods without a limit were made before it was part of the hash
		Key          string                `json:",omitempty"` // JOB-3: requests of other pods could not be opened
	}{
		version, options, pool.Spec.Resources.CPU.MilliValue(), pool.Spec.Resources.Memory.Value(), template, TokenSeconds, platform, pool.Spec.Architecture, limit, key,
	})
	if err != nil {
		return "", fmt.Errorf("hashing the template of %s: %w", pool.Name, err)
	}
	sum := sha256.Sum256(shape)
	return hex.EncodeToString(sum[:8]), nil
}

// shapeOfContainers is what of jobContainers a pod has from its beginning. What may be asked for is decided when it is.
func shapeOfContainers(containers *v1alpha1.JobContainers) *v1alpha1.JobContainers {
	shape := &v1alpha1.JobContainers{}
	if containers.SecurityProfile == v1alpha1.ProfileRestricted { // Baseline is the default
		shape.SecurityProfile = containers.SecurityProfile
	}
	if containers.ShmSize != nil {
		shape.ShmSize = resource.NewQuantity(containers.ShmSize.Value(), resource.BinarySI)
	}
	return shape
}
