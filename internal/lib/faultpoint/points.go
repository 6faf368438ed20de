package faultpoint

// Point is an instant at which a process can be made to die.
type Point string

// Points of the server.
const (
	// ClaimInserted: a claim, with the name of its registration, is committed; GitHub was not asked yet.
	ClaimInserted Point = "claim-inserted"
	// MintIntended: the name of a further registration is committed, for a claim that was taken over; GitHub was not asked.
	MintIntended Point = "mint-intended"
	// MintAnswered: GitHub has made the registration; that is not recorded.
	MintAnswered Point = "mint-answered"
	// MintRecorded: the registration is recorded; the pod has not been answered.
	MintRecorded Point = "mint-recorded"
	// AnswerWritten: the pod has been sent its configuration; it has not acknowledged.
	AnswerWritten Point = "answer-written"
	// AckReceived: the acknowledgement has arrived; it is not recorded.
	AckReceived Point = "ack-received"
	// AckRecorded: the acknowledgement is committed; the pod has no response yet, and its label is not written.
	AckRecorded Point = "ack-recorded"
	// BeforeStamp: the acknowledgement is recorded, and the pod's label is about to be written: its runner waits for it.
	BeforeStamp Point = "before-stamp"
	// RegistrationRemoved: GitHub has removed a registration; neither that nor the release of its claim is recorded.
	RegistrationRemoved Point = "registration-removed"
	// ClaimTaken: recovery has taken a claim, under a new generation, to end it; nothing of it has been removed.
	ClaimTaken Point = "claim-taken"
	// ClaimEnded: recovery has ended a claim; what follows from that, for its job and its pod, has not been done.
	ClaimEnded Point = "claim-ended"
	// WebhookCommitted: what a webhook says is committed; GitHub has not been answered.
	WebhookCommitted Point = "webhook-committed"
)

// Points of the controller.
const (
	// AccountCreated: a runner's ServiceAccount exists, its pod does not.
	AccountCreated Point = "account-created"
	// RemovalGranted: the server has granted a pod's removal; nothing is deleted yet.
	RemovalGranted Point = "removal-granted"
	// PodDeleted: the pod's deletion is under way; its ServiceAccount is still there.
	PodDeleted Point = "pod-deleted"
)

// Points of the node agent.
const (
	// ContainerStarted: a container runs, and no status says so.
	ContainerStarted Point = "container-started"
	// Adopting: what runs for a pod has been read from the sandbox, and not been taken over yet.
	Adopting Point = "adopting"
)

// Points of `bullpen host apply`, which passes them at every change of a host.
const (
	// HostBeforeChange: a change of the host is about to be made.
	HostBeforeChange Point = "host-before-change"
	// HostFileWritten: a file's new content is on the disk, beside the one that it is about to replace.
	HostFileWritten Point = "host-file-written"
	// HostAfterChange: a change of the host is made; nothing else is.
	HostAfterChange Point = "host-after-change"
)

// HostPoints lists the points of a Mac's preparation.
func HostPoints() []Point { return []Point{HostBeforeChange, HostFileWritten, HostAfterChange} }

// Component is the subcommand of the process that passes the point.
func (p Point) Component() string {
	switch p {
	case AccountCreated, RemovalGranted, PodDeleted:
		return "controller"
	case ContainerStarted, Adopting:
		return "node"
	case HostBeforeChange, HostFileWritten, HostAfterChange:
		return "host"
	default:
		return "server"
	}
}

// Points lists every point that a job passes, in the order of its life.
func Points() []Point {
	return []Point{
		WebhookCommitted, ClaimInserted, MintIntended, MintAnswered, MintRecorded, AnswerWritten, AckReceived, AckRecorded,
		BeforeStamp, ClaimTaken, RegistrationRemoved, ClaimEnded, AccountCreated, RemovalGranted, PodDeleted, ContainerStarted, Adopting,
	}
}
