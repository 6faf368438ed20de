package arcmigration

// podOnly are the fields of a pod's security context that its containers do not have, and why a pool's pods do not either.
var podOnly = map[string]reason{
	"fsGroup":                  {Dropped, "pods of a pool have no fsGroup, so files of claims and Secrets keep their owner and mode", "make them readable for the user of the runner, or convert with --to RunnerDeployment, which keeps the whole pod"},
	"fsGroupChangePolicy":      {Unneeded, "pods of a pool have no fsGroup", ""},
	"supplementalGroups":       {Dropped, "pods of a pool have no supplementary groups", "convert with --to RunnerDeployment, which keeps the whole pod"},
	"supplementalGroupsPolicy": {Unneeded, "pods of a pool have no supplementary groups", ""},
	"sysctls":                  {Dropped, "pods of a pool cannot set sysctls", "convert with --to RunnerDeployment, which keeps the whole pod"},
	"seLinuxChangePolicy":      {Unneeded, "it applies to volumes that pods share", ""},
}

// poolSecurity converts the security contexts of the runner's container and of its pod: what the container says comes before what the pod says, as in
// Kubernetes.
func (p *scaleSetParts) poolSecurity(pod, runner *value, template fields) {
	s := poolSchema().at("template", "securityContext")
	own, all := runner.get("securityContext"), pod.get("securityContext")
	made := fields{}
	for _, of := range []*value{own, all} {
		if of == nil {
			continue
		}
		for _, key := range of.keys {
			next, known := s.child(key)
			switch _, set := made[key]; {
			case !known || key == "runAsUser": // runAsUser is of the whole pod
			case set:
				p.unneeded(of.fields[key], "the container has its own "+key)
			default:
				if kept := p.keep(of.fields[key], next); kept != nil { // {} too: it says that nothing is restricted
					made[key] = kept
					p.from("spec.template.securityContext."+key, of.fields[key])
				}
			}
		}
		of.useEmpty()
	}
	p.podSecurity(all)
	p.poolPrivileges(runner, made, template)
	set(template, "securityContext", made)
}

// podSecurity speaks of what only a whole pod can have; where nothing else is in its context, of the context.
func (p *scaleSetParts) podSecurity(v *value) {
	for _, key := range v.mapping() {
		why, known := podOnly[key]
		switch {
		case !known:
		case len(v.keys) == 1:
			p.leave(why.verdict, v, why.reason, why.advice)
		default:
			p.leave(why.verdict, v.fields[key], why.reason, why.advice)
		}
	}
}

// poolPrivileges sees to it that a runner may do what it might in a scale set, and says where it may not.
func (p *scaleSetParts) poolPrivileges(runner *value, made, template fields) {
	const sudo = "for jobs that use sudo, set securityContext to {allowPrivilegeEscalation: true, capabilities: {}}"
	switch {
	case made["privileged"] == true:
		if template["runtimeClassName"] == nil {
			p.poolMicroVM(template, runner.place("securityContext", "privileged"), "the runner is privileged, so Bullpen starts it only in a microVM", "remove securityContext.privileged if no job needs it")
		}
	case made["allowPrivilegeEscalation"] == true:
		if made["capabilities"] == nil {
			made["capabilities"] = fields{} // a pool's default is to drop them all, and without any nothing can be gained
		}
	case made["allowPrivilegeEscalation"] == nil && template["dind"] == nil && !isZero(template["runAsUser"]) && runner != nil:
		p.find(Changed, runner.place("securityContext", "allowPrivilegeEscalation"), "a pool's runner cannot gain privileges by default, so sudo fails in jobs (POD-2)", sudo)
	}
}

func isZero(given any) bool {
	n, ok := number(given)
	return ok && n == 0
}

// poolMetadata converts the labels and annotations of the pods.
func (p *scaleSetParts) poolMetadata(template fields) {
	v := p.v.get("template", "metadata")
	for _, key := range []string{"cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-evict"} {
		p.unneeded(v.get("annotations", key), "Bullpen sets what autoscalers read: an idle runner may be moved, a busy one may not") // POOL-9
	}
	p.unneeded(v.get("annotations", "kubectl.kubernetes.io/default-container"), "Bullpen sets it: the container runner")
	made := fields{}
	p.marks(v, made)
	p.from("spec.template.metadata", v)
	set(template, "metadata", made)
	if len(made) > 0 {
		p.find(Changed, v, "its labels and annotations are added to those of Bullpen; pods no longer have those of actions-runner-controller",
			"change policies and monitors that select pods by the old ones to bullpen.dev/pool")
	}
}

// chosenBy says whether a selector chooses pods that have no other labels than these.
func chosenBy(selector *value, labels fields) bool {
	for _, key := range selector.get("matchLabels").mapping() {
		if labels[key] != selector.get("matchLabels").fields[key].peek() {
			return false
		}
	}
	for _, expression := range selector.get("matchExpressions").elements() {
		label, there := labels[expression.get("key").peek()]
		among := false
		for _, v := range expression.get("values").elements() {
			among = among || v.peek() == label
		}
		switch expression.get("operator").peek() {
		case "In":
			there = there && among
		case "NotIn":
			there = !there || !among
		case "DoesNotExist":
			there = !there
		}
		if !there {
			return false
		}
	}
	return true
}

// mapping are the keys of a mapping.
func (v *value) mapping() []string {
	if v == nil {
		return nil
	}
	return v.keys
}
