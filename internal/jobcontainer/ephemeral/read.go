package ephemeral

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Prefixes of the names of couriers and notices.
const (
	courierPrefix = runnerpod.ContainerCourier + "-"
	noticePrefix  = "notice-"
)

// Courier is one that is in the pod's spec.
type Courier struct {
	Number int // 0 is the pod's own
	// State is what the kubelet reports; zero while it reports nothing.
	State corev1.ContainerState
	// Unstarted says that the container runtime has it, and that it has neither started nor ended.
	Unstarted bool
	// brings are the arguments with its delivery.
	brings []string
}

// Delivery is what it brings. It is decoded at each call: a job decides how much that is, and all deliveries of a pod are not in memory at once.
func (c Courier) Delivery() letter.Delivery { return deliveryOf(c.brings) }

// Container is one of the job's that is in the pod's spec.
type Container struct {
	Name  string
	Role  jobcontainer.Role
	Image string
	State corev1.ContainerState
	// Unstarted is as in Courier.
	Unstarted bool
}

// Notice is one that is in the pod's spec.
type Notice struct {
	Number   int
	State    corev1.ContainerState
	Failures []letter.Failure
	// Unstarted is as in Courier.
	Unstarted bool
}

// View is what a pod shows of the containers of its job.
type View struct {
	Couriers   []Courier // by number; at least the pod's own
	Containers []Container
	Notices    []Notice
	All        int // containers of every kind in the pod's spec
	Size       int // of the object, in bytes
	// Reported is when the pod's status was last written; zero if the API server does not say it.
	Reported time.Time
}

// Read reads a pod. false: the pod has no courier, and was made for no job containers.
func Read(pod *corev1.Pod) (View, bool) {
	own := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == runnerpod.ContainerCourier })
	if own < 0 {
		return View{}, false
	}
	v := View{
		Couriers: make([]Courier, 1),
		All:      len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers),
		Size:     pod.Size(),
	}
	v.Couriers[0].State, _ = stateOf(pod.Status.ContainerStatuses, runnerpod.ContainerCourier)
	for i := range pod.ManagedFields {
		if f := &pod.ManagedFields[i]; f.Subresource == "status" && f.Time != nil && f.Time.After(v.Reported) {
			v.Reported = f.Time.Time
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		state, unstarted := stateOf(pod.Status.EphemeralContainerStatuses, c.Name)
		if number, ok := numbered(c.Name, courierPrefix); ok {
			v.Couriers = append(v.Couriers, Courier{Number: number, State: state, Unstarted: unstarted, brings: delivered(c.Args)})
		} else if number, ok := numbered(c.Name, noticePrefix); ok {
			v.Notices = append(v.Notices, Notice{Number: number, State: state, Failures: deliveryOf(delivered(c.Args)).Failures, Unstarted: unstarted})
		} else if role, ok := roleOf(c.Name); ok {
			v.Containers = append(v.Containers, Container{Name: c.Name, Role: role, Image: c.Image, State: state, Unstarted: unstarted})
		}
	}
	slices.SortStableFunc(v.Couriers, func(a, b Courier) int { return a.Number - b.Number })
	slices.SortStableFunc(v.Notices, func(a, b Notice) int { return a.Number - b.Number })
	return v, true
}

// Newest is the courier that waits for the next request, or has carried one that was not answered.
func (v View) Newest() Courier { return v.Couriers[len(v.Couriers)-1] }

// Response is what was answered to a request before (JOB-4).
func (v View) Response(id string) (jobcontainer.Response, bool) {
	read := map[string]bool{} // several couriers may bring the same
	for _, c := range slices.Backward(v.Couriers) {
		text := strings.Join(c.brings, "")
		if read[text] {
			continue
		}
		read[text] = true
		for _, r := range c.Delivery().Responses {
			if r.ID == id {
				return r, true
			}
		}
	}
	return jobcontainer.Response{}, false
}

// Count is how many containers of a role the job has had.
func (v View) Count(role jobcontainer.Role) int {
	count := 0
	for _, c := range v.Containers {
		if c.Role == role {
			count++
		}
	}
	return count
}

// Open is how many containers of a role run, or may start yet: also those whose images the kubelet goes on pulling. One that the container runtime
// has, and has not started, is never started.
func (v View) Open(role jobcontainer.Role) int {
	count := 0
	for _, c := range v.Containers {
		if c.Role == role && c.State.Terminated == nil && !c.Unstarted {
			count++
		}
	}
	return count
}

// Uncleared is how many containers of the job have run and have ended without having removed their files, which stay on the node until the pod is
// deleted. Their guards' exit codes say it; one that was killed has another than 0, too, and one to which a job has shown an end of its runner.
func (v View) Uncleared() int {
	count := 0
	for _, c := range v.Containers {
		t := c.State.Terminated
		if t == nil || t.ExitCode == 0 || t.StartedAt.Unix() <= 0 || t.Reason == "StartError" || t.Reason == "ContainerCannotRun" {
			continue // containerd gives one that never ran the time 0; a kubelet that has lost one gives none
		}
		count++
	}
	return count
}

// maxLost is how many notices that did not arrive are sent again.
const maxLost = 5

// Noticed is what was last reported to the job about a container, and when that had arrived. With settled, a notice that has not started by now never
// will.
func (v View) Noticed(container string, settled bool) (failure letter.Failure, arrived time.Time, ok bool) {
	lost := 0
	for _, n := range v.Notices {
		if t := n.State.Terminated; lost < maxLost && (n.Unstarted && settled || t != nil && t.ExitCode != 0) {
			lost++
			continue
		}
		for _, f := range n.Failures {
			if f.Container != container {
				continue
			}
			failure, ok = f, true
			if t := n.State.Terminated; t != nil {
				arrived = t.FinishedAt.Time
			}
		}
	}
	return failure, arrived, ok
}

// Parts are the pieces of the newest courier's request, from all couriers that carried one of it. false: the newest carried none.
func (v View) Parts() (id string, total int, parts []letter.Part, ok bool) {
	last, ok := v.Newest().part()
	if !ok {
		return "", 0, nil, false
	}
	for _, c := range v.Couriers {
		if part, ok := c.part(); ok && part.ID == last.ID && part.Total == last.Total {
			parts = append(parts, part)
		}
	}
	return last.ID, last.Total, parts, true
}

func (c Courier) part() (letter.Part, bool) {
	if c.State.Terminated == nil {
		return letter.Part{}, false
	}
	part, err := letter.ParsePart(c.State.Terminated.Message)
	return part, err == nil
}

// name of a container that was added for the courier of that number.
func name(role jobcontainer.Role, courier, position int) string {
	return fmt.Sprintf("%s-%d-%d", role, courier, position)
}

func roleOf(name string) (jobcontainer.Role, bool) {
	role, rest, _ := strings.Cut(name, "-")
	number, position, _ := strings.Cut(rest, "-")
	if _, err := strconv.ParseUint(number, 10, 16); err != nil {
		return "", false
	}
	if _, err := strconv.ParseUint(position, 10, 16); err != nil {
		return "", false
	}
	switch role := jobcontainer.Role(role); role {
	case jobcontainer.RoleJob, jobcontainer.RoleService, jobcontainer.RoleStep:
		return role, true
	}
	return "", false
}

func numbered(name, prefix string) (int, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(rest, 10, 16)
	return int(number), err == nil && number > 0
}

func stateOf(statuses []corev1.ContainerStatus, name string) (state corev1.ContainerState, unstarted bool) {
	for i := range statuses {
		if s := &statuses[i]; s.Name == name {
			return s.State, s.ContainerID != "" && s.State.Running == nil && s.State.Terminated == nil
		}
	}
	return corev1.ContainerState{}, false
}

// delivered are the arguments that follow the flags.
func delivered(args []string) []string {
	if at := slices.Index(args, "--"); at >= 0 {
		return args[at+1:]
	}
	return nil
}

// deliveryOf reads them. What cannot be read was not written by a controller, and says nothing.
func deliveryOf(arguments []string) letter.Delivery {
	if len(arguments) == 0 {
		return letter.Delivery{}
	}
	d, err := letter.ParseDelivery(arguments)
	if err != nil {
		return letter.Delivery{}
	}
	return d
}
