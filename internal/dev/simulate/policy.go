package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Policies is a file of policies to compare.
type Policies struct {
	// Accounts are limits for all policies that do not set their own: by login, or "*" for all others.
	Accounts map[string]string `json:"accounts,omitempty"`
	Policies []Policy          `json:"policies"`
}

// Policy is a set of pools, as they would be in a cluster, and the accounts' limits.
type Policy struct {
	Name string `json:"name"`
	// Accounts are written as `bullpen accounts` takes limits (jobs=40,cpu=32,memory=64Gi), or "unlimited". Who is not in it
	// has the limits of a new account.
	Accounts map[string]string `json:"accounts,omitempty"`
	Pools    []PoolPolicy      `json:"pools"`

	limits map[string]fleet.Limits
}

// PoolPolicy is a RunnerPool: its name, and its spec field by field. Of the template nothing counts, and it may be left out.
type PoolPolicy struct {
	Name string                  `json:"name"`
	Spec v1alpha1.RunnerPoolSpec `json:"spec"`
}

const unlimited = "unlimited"

// ParsePolicies reads a file of policies, in YAML or JSON. A field that RunnerPool has not is an error.
func ParsePolicies(text []byte) ([]Policy, error) {
	var file Policies
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	if len(file.Policies) == 0 {
		return nil, fmt.Errorf("there is no policy: write a list `policies`, each with a name and pools")
	}
	seen := map[string]bool{}
	for i := range file.Policies {
		p := &file.Policies[i]
		if p.Name == "" || seen[p.Name] {
			return nil, fmt.Errorf("policy %d needs a name that no other has", i+1)
		}
		seen[p.Name] = true
		if p.Accounts == nil {
			p.Accounts = file.Accounts
		}
		if err := p.complete(); err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
	}
	return file.Policies, nil
}

func (p *Policy) complete() error {
	if len(p.Pools) == 0 {
		return fmt.Errorf("it has no pools")
	}
	names := map[string]bool{}
	for i := range p.Pools {
		if err := p.Pools[i].complete(); err != nil {
			return fmt.Errorf("pool %d (%s): %w", i+1, p.Pools[i].Name, err)
		}
		if names[p.Pools[i].Name] {
			return fmt.Errorf("two pools are called %s", p.Pools[i].Name)
		}
		names[p.Pools[i].Name] = true
	}
	slices.SortFunc(p.Pools, func(a, b PoolPolicy) int { return strings.Compare(a.Name, b.Name) })
	p.limits = map[string]fleet.Limits{}
	for login, text := range p.Accounts {
		if text == unlimited {
			p.limits[strings.ToLower(login)] = fleet.Limits{MilliCPU: math.MaxInt64 / 2, MemoryMB: math.MaxInt64 / 2, Jobs: math.MaxInt64 / 2}
			continue
		}
		limits, err := fleet.ParseLimits(text, fleet.DefaultLimits(fleet.Linux))
		if err != nil {
			return fmt.Errorf("account %s: %w", login, err)
		}
		p.limits[strings.ToLower(login)] = limits
	}
	return nil
}

// complete fills in what the API server would, and refuses what it would refuse and what is not played.
func (p *PoolPolicy) complete() error {
	spec := &p.Spec
	if spec.Platform == "" {
		spec.Platform = v1alpha1.PlatformLinux
	}
	scale := spec.Autoscaling
	switch {
	case p.Name == "":
		return fmt.Errorf("it needs a name")
	case len(spec.Labels) == 0:
		return fmt.Errorf("it needs spec.labels: the first is what workflows write in runs-on")
	case spec.Resources.CPU.Sign() <= 0 || spec.Resources.Memory.Sign() <= 0:
		return fmt.Errorf(`it needs spec.resources, which accounts are charged with: {cpu: "4", memory: 16Gi}`)
	case spec.Provisioning.MaxConcurrentStarts != nil:
		return fmt.Errorf("spec.provisioning.maxConcurrentStarts is a matter of nodes, which are not played: leave it out")
	case scale != nil && scale.Enabled && scale.MaxReplicas == nil:
		return fmt.Errorf("autoscaling needs a ceiling: set spec.autoscaling.maxReplicas")
	case scale != nil && scale.MaxReplicas != nil && scale.MinIdle != nil && *scale.MinIdle > *scale.MaxReplicas:
		return fmt.Errorf("spec.autoscaling.minIdle is greater than maxReplicas")
	case spec.Replicas != nil && *spec.Replicas < 0 || scale != nil && scale.MinIdle != nil && *scale.MinIdle < 0:
		return fmt.Errorf("a number of runners is negative")
	}
	return nil
}

// limitsOf are an account's on both platforms.
func (p *Policy) limitsOf(login string) map[fleet.Platform]fleet.Limits {
	limits := map[fleet.Platform]fleet.Limits{}
	for _, platform := range []fleet.Platform{fleet.Linux, fleet.MacOS} {
		limits[platform] = fleet.DefaultLimits(platform)
		if set, named := p.limits[strings.ToLower(login)]; named {
			limits[platform] = set
		} else if set, named := p.limits["*"]; named {
			limits[platform] = set
		}
	}
	return limits
}
