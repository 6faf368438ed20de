package arcmigration

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

const (
	metricBusy = "PercentageRunnersBusy"
	metricRuns = "TotalNumberOfQueuedAndInProgressWorkflowRuns"
)

func autoscalingSchema() schema {
	return kindSchemas()[v1alpha1.KindRunnerDeployment].at("spec", "autoscaling")
}

// autoscaler makes a HorizontalRunnerAutoscaler a part of its target.
func (c *conversion) autoscaler(all []*conversion) {
	c.object.Outcome = Merged
	c.explain("", autoscalerReasons)
	meta, spec := c.root.get("metadata"), c.root.get("spec")
	c.text(meta.get("name"))
	c.text(meta.get("namespace"))
	if meta != nil {
		for _, key := range meta.keys {
			c.unneeded(meta.get(key), "the autoscaler is a part of its target, and has no metadata of its own")
		}
	}
	c.unneeded(c.root.get("status"), "the controller writes it")

	target := c.target(all)
	if target == nil {
		return
	}
	c.object.Into = target.object.Into
	c.sameCredentials(target)
	made := c.scaling(spec, target)
	if c.failed() {
		target.todo(target.root.get("spec"), "its autoscaler could not be converted", "correct the "+c.object.Kind+", and convert again")
		return
	}
	into, _ := target.made["spec"].(fields)
	into["autoscaling"], c.partOf = made, target
	target.notes = append([]string{fmt.Sprintf("With %s from %s, document %d, line %d", c.object.Reference, c.file, c.number, c.root.line)}, append(target.notes, c.notes...)...)
}

// target finds what the autoscaler scales, among everything that was read.
func (c *conversion) target(all []*conversion) *conversion {
	ref := c.root.get("spec", "scaleTargetRef")
	kind, name := c.text(ref.get("kind")), c.text(ref.get("name"))
	if kind == "" {
		kind = v1alpha1.KindRunnerDeployment
	}
	wanted := Reference{Kind: kind, Namespace: c.object.Namespace, Name: name}
	for _, other := range all {
		if other.group() != legacyGroup || other.object.Reference != wanted {
			continue
		}
		spec, _ := other.made["spec"].(fields)
		switch {
		case other.kind != v1alpha1.KindRunnerDeployment && other.kind != v1alpha1.KindRunnerSet || other.failed():
			c.fail(ref, fmt.Sprintf("its target %s could not be converted", wanted), "")
			return nil
		case spec["autoscaling"] != nil:
			c.fail(ref, fmt.Sprintf("its target %s has another autoscaler already", wanted), "remove one of them")
			return nil
		}
		return other
	}
	c.fail(ref, fmt.Sprintf("its target %s is in none of the files", wanted), "convert them together: an autoscaler becomes a part of its target")
	return nil
}

func (c *conversion) sameCredentials(target *conversion) {
	v := c.root.get("spec", "githubAPICredentialsFrom", "secretRef", "name")
	if v == nil {
		return
	}
	given, _ := target.registered()["credentials"].(fields)
	if c.text(v) != given["secretName"] {
		c.find(Dropped, v, "the runners' own credentials are used to look at their jobs", "")
	}
}

// registered is the part of what was made that says where its runners are registered.
func (c *conversion) registered() fields { return c.registeredIn(c.made) }

func (c *conversion) registeredIn(made fields) fields {
	spec, _ := made["spec"].(fields)
	if c.kind == v1alpha1.KindRunnerSet || c.kind == v1alpha1.KindRunner {
		return spec
	}
	template, _ := spec["template"].(fields)
	inner, _ := template["spec"].(fields)
	return inner
}

func (c *conversion) scaling(v *value, target *conversion) fields {
	made, s := fields{}, autoscalingSchema()
	c.keepFields(made, v, s, "minReplicas", "maxReplicas")
	if made["maxReplicas"] == nil && !c.failed() {
		c.fail(v.place("maxReplicas"), "the autoscaler has no maxReplicas, without which the old one does nothing either", "set maxReplicas")
	}
	if seconds, given := c.integer(v.get("scaleDownDelaySecondsAfterScaleOut")); given {
		made["scaleDownCooldown"] = (time.Duration(min(max(seconds, 0), math.MaxInt32)) * time.Second).String()
	}
	for _, metric := range v.get("metrics").elements() {
		switch kind := c.text(metric.get("type")); kind {
		case metricBusy:
			c.percentage(metric, made)
		case metricRuns:
			c.jobs(metric, made, target)
		default:
			c.find(Dropped, metric.get("type"), "it is no metric that is known", "")
		}
	}
	v.get("metrics").useEmpty()
	for _, trigger := range v.get("scaleUpTriggers").elements() {
		c.trigger(trigger, made)
	}
	v.get("scaleUpTriggers").useEmpty()
	c.schedules(v.get("scheduledOverrides"), made)
	return made
}

// percentage converts the metric of busy runners. Its numbers are shares, written as texts.
func (c *conversion) percentage(v *value, made fields) {
	if made["percentageBusy"] != nil {
		c.drop(v, "there is another metric of this type", "")
		return
	}
	busy, s := fields{}, autoscalingSchema().at("percentageBusy")
	c.threshold(v, busy)
	for _, field := range []struct{ from, to string }{{"scaleDownThreshold", "downBelow"}, {"scaleUpFactor", "upFactor"}, {"scaleDownFactor", "downFactor"}} {
		given := v.get(field.from)
		share, ok := c.share(given, field.to)
		if !ok {
			continue
		}
		percent := int64(math.Round(share * 100))
		if problem := s.at(field.to).scalarProblem(percent); problem != "" {
			c.find(Dropped, given, fmt.Sprintf("as a percentage, %s; the default of %s holds", problem, field.to), "")
			continue
		}
		if math.Abs(share*100-float64(percent)) > 1e-6 {
			c.find(Changed, given, fmt.Sprintf("%v is rounded to %d%%", share, percent), "")
		}
		busy[field.to] = percent
	}
	c.apart(v, busy)
	made["percentageBusy"] = busy
}

// share reads a share such as "0.75"; false if there is none.
func (c *conversion) share(v *value, to string) (float64, bool) {
	text := c.numeral(v)
	if text == "" {
		return 0, false
	}
	share, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(share) || math.Abs(share) > 1e6 {
		c.find(Dropped, v, fmt.Sprintf("%q is no share such as 0.75; the default of %s holds", text, to), "")
		return 0, false
	}
	return share, true
}

// defaultUpThreshold is the peer's.
const defaultUpThreshold = 0.8

// threshold converts the share from which on the number goes up: at the peer's by as much or more, at Bullpen by more than upAbove.
func (c *conversion) threshold(v *value, busy fields) {
	at := v.place("scaleUpThreshold")
	share, ok := c.share(v.get("scaleUpThreshold"), "upAbove")
	if !ok {
		share = defaultUpThreshold
	}
	percent := int64(math.Ceil(share*100-1e-6)) - 1
	busy["upAbove"] = min(max(percent, 1), 100)
	switch {
	case percent > 100 || share > 1:
		busy["upAbove"] = int64(100)
		c.find(Changed, at, fmt.Sprintf("%v is a share that is never reached, and the number never goes up by it, as before", share), fmt.Sprintf("if %v%% was meant, set percentageBusy.upAbove to %v", share, math.Ceil(share)-1))
	case percent < 1:
		c.find(Changed, at, fmt.Sprintf("%v is less than can be said: the number goes up when more than 1%% of the runners are busy", share), "")
	default:
		c.find(Changed, at, fmt.Sprintf("the number goes up when %v%% or more of the runners are busy, and upAbove says more than: %d%%", math.Round(share*1e4)/1e2, percent), "")
	}
}

// apart keeps the share below which the number goes down less than that above which it goes up, or it would swing.
func (c *conversion) apart(v *value, busy fields) {
	s := autoscalingSchema().at("percentageBusy")
	up, down := withDefault(busy["upAbove"], s.at("upAbove")), withDefault(busy["downBelow"], s.at("downBelow"))
	switch {
	case down < up:
	case down == up && down > 0:
		busy["downBelow"] = int64(up) - 1
		c.find(Changed, v.place("scaleDownThreshold"), fmt.Sprintf("it is %v%%, next to scaleUpThreshold, and is lowered to %v%%, so that the number does not swing", down, up-1), "")
	default:
		c.fail(v.place("scaleDownThreshold"), fmt.Sprintf("scaleDownThreshold is not less than scaleUpThreshold (%v%% and %v%%), and the number would swing", down, up+1), "")
	}
}

func withDefault(given any, s schema) float64 {
	if n, ok := number(given); ok {
		return n
	}
	switch n := s["default"].(type) {
	case float64:
		return n
	case int64:
		return float64(n)
	}
	return 0
}

// jobs converts the metric of workflow runs.
func (c *conversion) jobs(v *value, made fields, target *conversion) {
	jobs, _ := made["jobs"].(fields)
	if jobs == nil {
		jobs = fields{}
	}
	made["jobs"] = jobs
	where := target.registered()
	if where["repository"] != nil {
		c.unneeded(v.get("repositoryNames"), "the queue of the runners' one repository is read without being told")
		return
	}
	organization, _ := where["organization"].(string)
	s := autoscalingSchema().at("jobs", "repositories", "[]")
	kept, _ := jobs["repositories"].([]any)
	for _, item := range v.get("repositoryNames").elements() {
		name := c.text(item)
		if organization == "" && !strings.Contains(name, "/") {
			c.find(Dropped, item, "of an enterprise's repository the owner must be known", "add it to autoscaling.jobs.repositories, as owner/name")
			continue
		}
		if !strings.Contains(name, "/") {
			name = organization + "/" + name
		}
		if problem := s.scalarProblem(name); problem != "" {
			c.fail(item, problem, "")
			continue
		}
		if !contains(kept, name) {
			kept = append(kept, name)
		}
	}
	v.get("repositoryNames").useEmpty()
	set(jobs, "repositories", kept)
}

func contains(list []any, wanted string) bool {
	for _, item := range list {
		if item == wanted {
			return true
		}
	}
	return false
}

// trigger converts an event that adds runners. Jobs are counted whatever the event, since each of them wants one runner.
func (c *conversion) trigger(v *value, made fields) {
	event := v.get("githubEvent")
	if made["jobs"] == nil {
		made["jobs"] = fields{}
	}
	event.get("workflowJob").useEmpty()
	for name, what := range map[string]string{"checkRun": "check runs", "pullRequest": "pull requests", "push": "pushes"} {
		c.drop(event.get(name), "runners are counted by jobs, not by "+what, "autoscaling.jobs has a runner for each job; narrow them by labels")
	}
	if event != nil && event.leaf() || v.leaf() {
		v.use()
	}
	if amount, given := c.integer(v.get("amount")); given && amount != 1 {
		c.find(Changed, v.get("amount"), fmt.Sprintf("each job that waits has one runner, not %d", amount), "set autoscaling.jobs.minIdle to keep more runners waiting")
	}
}

// schedules converts what replaces minReplicas at certain times.
func (c *conversion) schedules(v *value, made fields) {
	s := autoscalingSchema().at("schedules", "[]")
	var kept []any
	for i, override := range v.elements() {
		if override.get("minReplicas") == nil {
			c.drop(override, "it has no minReplicas, and so overrides nothing", "")
			continue
		}
		schedule := fields{"name": fmt.Sprintf("override-%d", i+1)}
		set(schedule, "start", c.keep(override.get("startTime"), s.at("start")))
		set(schedule, "end", c.keep(override.get("endTime"), s.at("end")))
		set(schedule, "minReplicas", c.keep(override.get("minReplicas"), s.at("minReplicas")))
		rule := override.get("recurrenceRule")
		if frequency := rule.get("frequency"); frequency.peek() != "" {
			set(schedule, "repeat", c.keep(frequency, s.at("repeat")))
			c.zone(override.get("startTime"))
		} else {
			c.text(frequency)
		}
		set(schedule, "until", c.keep(rule.get("untilTime"), s.at("until")))
		rule.useEmpty()
		c.inOrder(override, schedule)
		kept = append(kept, schedule)
	}
	v.useEmpty()
	set(made, "schedules", kept)
}

// zone speaks of times that are written with an offset from UTC.
func (c *conversion) zone(start *value) {
	at, err := time.Parse(time.RFC3339, start.peek())
	if err != nil {
		return
	}
	if _, offset := at.Zone(); offset != 0 {
		c.find(Changed, start, "it comes again at the same time of day in UTC", "to have it follow a clock that changes twice a year, set timeZone, such as Europe/Berlin")
	}
}

func (c *conversion) inOrder(v *value, schedule fields) {
	start, _ := schedule["start"].(string)
	end, _ := schedule["end"].(string)
	from, err := time.Parse(time.RFC3339, start)
	to, other := time.Parse(time.RFC3339, end)
	switch {
	case err != nil || other != nil:
		if !c.failed() {
			c.fail(v, "startTime or endTime is missing", "")
		}
	case !from.Before(to):
		c.fail(v, "it ends before it starts", "give it an endTime that is later than startTime")
	default: // the rule of the CRD compares texts of times of one zone
		schedule["start"], schedule["end"] = from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339)
	}
}
