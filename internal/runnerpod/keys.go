package runnerpod

import "github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"

// Labels. Only the controller writes LabelRunner and LabelPool (NET-4); only the server writes LabelOwner.
const (
	// LabelRunner is "true" on every runner pod and its ServiceAccount: network policies and list selectors use it.
	LabelRunner = "bullpen.dev/runner"
	// LabelPool names the RunnerPool.
	LabelPool = "bullpen.dev/runner-pool"
	// LabelOwner is the account a busy pod works for. A projection of the claim, never the place where ownership is
	// decided; network policies of idle pods select on its absence (NET-1).
	LabelOwner = "bullpen.dev/runner-pool-owner"
	// LabelTemplateHash tells pods of different templates of one pool apart.
	LabelTemplateHash = "bullpen.dev/template-hash"
)

// Labels of self-registering runners, on their pods and on what stands behind them. They carry LabelRunner too, and never
// LabelPool: the server knows nothing of them.
const (
	// LabelSelfRegistering is "true" on their pods and Secrets.
	LabelSelfRegistering = "bullpen.dev/self-registering"
	// LabelDeployment, LabelReplicaSet and LabelRunnerSet name the owner of that kind.
	LabelDeployment = "bullpen.dev/runner-deployment"
	LabelReplicaSet = "bullpen.dev/runner-replica-set"
	LabelRunnerSet  = "bullpen.dev/runner-set"
	// LabelStatefulSet tells the one StatefulSet behind a runner of a RunnerSet from former ones of its name: it is what that
	// selects its pod by.
	LabelStatefulSet = "bullpen.dev/stateful-set"
	// LabelEphemeral is "true" or "false".
	LabelEphemeral = "bullpen.dev/ephemeral"
)

// Annotations of the pods of self-registering runners: what GitHub knows of them, read after a restart.
const (
	// AnnotationRunnerID is GitHub's id of the registration, AnnotationRunnerName its name.
	AnnotationRunnerID   = "bullpen.dev/runner-id"
	AnnotationRunnerName = "bullpen.dev/runner-name"
	// AnnotationUnregistered is when GitHub's removal was granted (RFC 3339). It is written once, and no job starts on the
	// runner after that.
	AnnotationUnregistered = "bullpen.dev/unregistered-at"
	// AnnotationRegistered is when GitHub first listed the runner as online (RFC 3339).
	AnnotationRegistered = "bullpen.dev/registered-at"
	// AnnotationUnseen is when GitHub's list, read after the runner should have been in it, did not show the runner as registered
	// and up (RFC 3339).
	AnnotationUnseen = "bullpen.dev/unseen-at"
	// AnnotationSecretMissing is since when the pod is known to wait for its Secret, which is missing or lacks what the
	// runner registers with (RFC 3339).
	AnnotationSecretMissing = "bullpen.dev/secret-missing-since"
	// AnnotationRegistration holds RegistrationFacts as JSON.
	AnnotationRegistration = "bullpen.dev/registration"
	// AnnotationTokenExpires is when the token in a static runner's Secret expires (RFC 3339); absent while there is none.
	AnnotationTokenExpires = "bullpen.dev/token-expires-at"
)

// Variables of a self-registering runner's container. Each occurs exactly once, however often a pod is made from a template
// that has them (RUN-5). That of a static runner's token is blank: jobs can read their container's variables (NET-3).
const (
	EnvRunnerName  = "RUNNER_NAME"
	EnvRunnerToken = podenv.RunnerToken
)

// Keys of pre-pull pods and of the DaemonSet that has them (spec.imagePrepull). They are no runners: they never carry LabelRunner or
// LabelPool, which a drained pool is waited for by.
const (
	// LabelPrepull names the RunnerPool, on the DaemonSet and on its pods.
	LabelPrepull = "bullpen.dev/prepull"
	// LabelImages names the images that a pre-pull pod pulls.
	LabelImages = "bullpen.dev/images"
	// AnnotationPrepullSpec of the DaemonSet is a hash of all that the controller wrote in it.
	AnnotationPrepullSpec = "bullpen.dev/prepull-spec"
)

// SecretTypeRegistration is the type of the Secrets that self-registering runners register with.
const SecretTypeRegistration = "bullpen.dev/registration"

// Finalizers.
const (
	// FinalizerPoolDrain holds a deleted RunnerPool until its last busy pod has ended (POOL-2).
	FinalizerPoolDrain = "bullpen.dev/runner-pool-drain"
	// FinalizerRegistration holds a self-registering runner (its pod, its Runner, its RunnerSet) until GitHub has removed it
	// (RUN-2).
	FinalizerRegistration = "bullpen.dev/runner-registration"
	// FinalizerSandbox is the node agent's: the VM or the processes are gone before the pod is (NODE-2).
	FinalizerSandbox = "bullpen.dev/vm-cleanup"
)

// The marks of Macs among nodes.
const (
	// ResourceMacOSVM is the extended resource of nodes that run macOS virtual machines. Its allocatable amount is the
	// number of usable slots, of the two that Apple's licence grants one Mac (NODE-5).
	ResourceMacOSVM = "bullpen.dev/macos-vm"
	// TaintMacOS keeps pods that did not ask for a Mac off it. The node agent registers Macs with it (NoSchedule), pods of pools of
	// platform macos tolerate it.
	TaintMacOS = "bullpen.dev/macos"
)

// Annotations.
const (
	// AnnotationAllowDeletion is the break-glass of the admission policies that keep busy runners from being deleted
	// (EXCL-7, charts/bullpen/templates/admission): a user who sets it, to a reason, may then delete the pod. The audit log repeats
	// the reason.
	//
	// The policies hold for the controller too: without the annotation, the API server answers 403 to the deletion of a
	// pod that shows work and has not ended. The controller sets it in one case, right before it deletes a pod whose work
	// is proven to be over although the pod cannot show it (its node is gone, POOL-7; a leak that a recovery verdict has
	// found, RECV-1), and the reason is the proof. One patch, for such pods only; idle and terminal ones need none. If the
	// pod is not deleted, and turns out to be busy, the controller removes its own reason again.
	AnnotationAllowDeletion = "bullpen.dev/allow-deletion"
	// AnnotationOwnerID is GitHub's id of the account that LabelOwner names, written with it: the account may be renamed, and
	// its name be taken by another. Pods that an earlier version stamped have none.
	AnnotationOwnerID = "bullpen.dev/runner-pool-owner-id"
	// AnnotationSafeToEvict ("false") and AnnotationDoNotDisrupt ("true") tell the cluster autoscaler and Karpenter to
	// leave a node alone while a runner on it is busy (POOL-9). A pod begins with AnnotationSafeToEvict "true": without it the cluster
	// autoscaler keeps every node with a pod that has an emptyDir volume, or an owner that it does not know. The server changes both with
	// the owner label, in one patch.
	AnnotationSafeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// Containers of a runner pod.
const (
	// ContainerAgent is the init container that copies the agent's binary into the shared volume.
	ContainerAgent = "agent"
	// ContainerPoller holds the token and trades it for one JIT configuration.
	ContainerPoller = "poller"
	// ContainerBuildKit runs a BuildKit daemon for the jobs of one pod, once a job uses it.
	ContainerBuildKit = "buildkit"
	// ContainerRunner runs the runner once; it never sees the token (NET-3).
	ContainerRunner = "runner"
	// ContainerIdle runs while no job has started in ContainerRunner, and its exit shows that one has (EXCL-4). Runners on Linux that
	// run one job have it.
	ContainerIdle = "idle"
	// ContainerCourier carries a job's first request for containers to the controller, as its termination message. The ephemeral
	// containers that carry the next ones are made after it.
	ContainerCourier = "courier"
)

// EnvPodUID and the variables below configure the agent inside the pod.
const (
	EnvDispatchURL = podenv.DispatchURL
	EnvTokenFile   = podenv.TokenFile
	EnvSharedDir   = podenv.SharedDir
	EnvStatusDir   = podenv.StatusDir
	EnvPodName     = podenv.PodName
	EnvPodUID      = podenv.PodUID
	EnvWorkDir     = podenv.WorkDir
	EnvCAFile      = podenv.CAFile
)

// Files in the shared volume.
const (
	// FileJIT holds the JIT configuration.
	FileJIT = podenv.FileJIT
	// FileAgent is the agent's binary, FileMacAgent the one that a virtual machine on a Mac starts.
	FileAgent    = "bullpen-agent"
	FileMacAgent = "bullpen"
)
