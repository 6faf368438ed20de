package runnerowner

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// Owner is what an owner of runners wants, as its Backing reads it: a value but for Object.
type Owner struct {
	// Object is the owner itself, for Events and for the Backing. It is not changed.
	Object client.Object

	// Desired is the number of runners, busy ones included.
	Desired int
	// TemplateHash tells the runners of the present template from others.
	TemplateHash string
	Ephemeral    bool
	// MaxSurge and MaxUnavailable limit a roll within the owner.
	MaxSurge, MaxUnavailable int
	// RegistrationTimeout is how long a ready pod may be unknown to GitHub; 0 for the default.
	RegistrationTimeout time.Duration
	// ScaledAt and RecreationHold are for the hold (RUN-4), and CompleteAt is what the status has of it.
	ScaledAt, CompleteAt time.Time
	RecreationHold       time.Duration
	// Scaling is for the condition ScalingActive alone.
	Scaling Scaling
	// Invalid says why no pod is built from the template; nil where one is.
	Invalid error
	// Secret has the credentials that the Backing registers its members with; empty where it does not, or where they are the
	// installation's own. A change of it has them tried again at once.
	Secret string
	// Protected indicates that the owner has our finalizer, and Conditions are those that it has.
	Protected  bool
	Conditions []metav1.Condition
}

func (o *Owner) terminating() bool { return !o.Object.GetDeletionTimestamp().IsZero() }

// Member is what stands behind one runner, as a watch or a read showed it: a value.
type Member struct {
	Namespace, Name, UID, ResourceVersion string
	// OwnerName and OwnerUID are of the controller owner, and not of a label (F 2.8).
	OwnerName, OwnerUID string
	TemplateHash        string
	Created             time.Time
	// Deleting is when its deletion began; zero when it is not being deleted.
	Deleting time.Time
	// Ended: its runner has ended, and its pod is gone or was never made. It is never started again (RUN-7).
	Ended bool
	// Waiting is what it waits for before it has a pod, in a sentence.
	Waiting string
	// RunnerName is what GitHub knows it by, and Started says that it may have had a pod: for the Backing.
	RunnerName string
	Started    bool
	// PodRefused is why the deletion of its pod fails, where its own controller deletes that.
	PodRefused removal.Refusal
}

// Removal is one member to remove.
type Removal struct {
	// Owner as it was loaded last.
	Owner  *Owner
	Member Member
	// Exists indicates that the member itself is still there; its pod may outlive it.
	Exists bool
	// Pod is its pod as it was observed last; nil for none.
	Pod *registered.View
	// Over: it had a pod, which is gone, so that its registration was seen to.
	Over bool
	// Left: it was wanted gone so long ago that a registration which nothing can use keeps it no longer. One that may have a pod
	// knows no such end (RUN-2).
	Left bool
	// Granted indicates that the fence has granted the pod's removal, with Proof, and Lost that it was asked as a lost one.
	Granted, Lost, NodeGone bool
	Proof                   string
}

// Tended is what came of looking after a member.
type Tended struct {
	// Next is when to look after it again although nothing has changed; zero for never.
	Next time.Time
	// Unfit indicates that it will never serve; the zero value that it will.
	Unfit lifecycle.Unfit
	// Ended: what it would register with was used, and is gone: it is never started (RUN-7).
	Ended bool
}

// ErrTaken: something else has that name. Another is tried.
var ErrTaken = errors.New("the name is taken")

// Backing is how one kind of owner backs its runners. Everything that is wanted, counted or decided is not its affair. It is safe
// for concurrent use.
type Backing interface {
	// Kind of the owner, for logs, metrics and Events.
	Kind() string
	// NewOwner and NewMember make empty objects, for watches.
	NewOwner() client.Object
	NewMember() client.Object
	// Load reads an owner from the cache; nil when there is none.
	Load(ctx context.Context, key types.NamespacedName) (*Owner, error)
	// Observe reads a member; false when no owner of the kind has it.
	Observe(object client.Object) (Member, bool)
	// PodOf is the name of a member's pod, and MemberOf the name of a pod's member.
	PodOf(member string) string
	MemberOf(pod string) string
	// Names returns n names for new members; taken reports names that it must not return.
	Names(ctx context.Context, owner *Owner, n int, taken func(string) bool) ([]string, error)
	// Create makes a member and returns its UID. If the owner already has one of that name, that is success; any other object of that name
	// is ErrTaken. It sends requests to the API server only.
	Create(ctx context.Context, owner *Owner, name string) (uid string, err error)
	// Tend does what a member needs beside existing, such as its registration. It may wait for GitHub.
	Tend(ctx context.Context, owner *Owner, member Member, pod *registered.View) (Tended, error)
	// Remove removes a member, and its pod if that is not another's affair. It is called again until both are gone; each is
	// deleted as it was observed and not otherwise. The answer is the fence's, where that was asked.
	Remove(ctx context.Context, removal Removal) (lifecycle.Answer, error)
	// Hold puts our finalizer on the owner, and Release removes it when nothing of a deleted one is left.
	Hold(ctx context.Context, owner *Owner) error
	Release(ctx context.Context, owner *Owner) error
	// WriteStatus writes what is in Status, and nothing else of the owner's status.
	WriteStatus(ctx context.Context, owner *Owner, status Status) error
}

// Status is what this package says of an owner.
type Status struct {
	Counts       v1alpha1.RunnerCounts
	Generation   int64
	TemplateHash string
	Desired      int
	// Updated is the number of runners of the present template.
	Updated    int
	CompleteAt metav1.Time
	Conditions []metav1.Condition
}
