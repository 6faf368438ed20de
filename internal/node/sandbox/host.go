package sandbox

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// HostReporter is implemented by back ends that know more of the node than the machine says: other operating systems inside virtual
// machines, slots for them, what is wrong with either. A back end without it offers what the machine has.
type HostReporter interface {
	// Host is what the back end knows now. It is quick: it never calls a program, waits for nothing, and is safe for concurrent use. The
	// node agent asks every second, and writes the Node object as soon as the answer differs from the last.
	Host() HostState
}

// HostState is a back end's part of the Node object.
type HostState struct {
	// OS and Arch are what containers see, in Go's words ("darwin", "arm64"). Empty means those of the node agent.
	OS, Arch string
	// Capacity is added to the node agent's configured capacity, and overrides it where both name a resource.
	Capacity corev1.ResourceList
	// Allocatable is what of it can be used now, where that is less: 0 takes the node out of scheduling for pods that need the
	// resource. A node may not taint itself; this is how a device plug-in's broken device works too.
	Allocatable corev1.ResourceList
	// Conditions are set on the node beside a kubelet's. One that is no longer reported is removed.
	Conditions []Condition
}

// Condition is one node condition. Each change of any field is a write to the API server: Message holds no reading of a clock, and
// no number that always moves.
type Condition struct {
	Type            string // CamelCase, not one of a kubelet's
	Status          corev1.ConditionStatus
	Reason, Message string
}

// ImageCollector is implemented by back ends that keep images on this machine.
type ImageCollector interface {
	// CollectImages removes images that nothing uses, the least valuable first, until about want bytes are free that were not, and
	// says how many that was. It never touches what a pod on record needs. It may be slow, and ends when ctx does; freed counts also
	// beside an error.
	CollectImages(ctx context.Context, want int64) (freed int64, err error)
}

// ImageLocator is implemented by back ends whose images may lie in another file system than the node agent's state directory.
type ImageLocator interface {
	// ImagesDir is a directory in the file system that holds the images. It exists, and does not change.
	ImagesDir() string
}

// NewsSource is implemented by back ends that can tell how a pod that takes long to start gets on: an image is pulled, say.
type NewsSource interface {
	// TellNews sets the receiver of news, before any other call. tell does not block and is safe for concurrent use.
	TellNews(tell func(podUID string, news News))
}

// News become an Event of the pod and, while its containers wait, the message of their waiting state.
type News struct {
	Reason  string // CamelCase, as a kubelet says it: Pulling, Pulled
	Message string
}
