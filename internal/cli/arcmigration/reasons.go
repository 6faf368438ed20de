package arcmigration

// runnerReasons are for the spec of legacy runners.
var runnerReasons = map[string]reason{
	"dockerMTU": {Dropped, "the Docker daemon's MTU cannot be chosen",
		"where packets are lost, set the MTU of jobs' networks in the workflow (docker network create --opt com.docker.network.driver.mtu=…)"},
	"dockerRegistryMirror":        {Dropped, "the Docker daemon's mirror cannot be chosen", "build an image from docker:28-dind that has a /etc/docker/daemon.json, and name it in dind.image"},
	"dockerVarRunVolumeSizeLimit": {Dropped, "the volume of the daemon's socket is Bullpen's own, and has no limit", ""},
	"dockerdContainerResources": {Dropped, "the Docker daemon's container has no resources of its own",
		"give the runner's container what jobs and the daemon need together: in a microVM they share it"},
	"dockerVolumeMounts": {Dropped, "nothing can be mounted into the Docker daemon's container", "the folder where jobs work is there anyway; build an image from docker:28-dind if the daemon needs more, and name it in dind.image"},
	"dockerEnv":          {Dropped, "the Docker daemon's container has no environment that can be chosen", "build an image from docker:28-dind that sets it, and name it in dind.image"},
	"volumeSizeLimit":    {Dropped, "the volume where actions-runner-controller's image keeps the runner does not exist", "to limit where jobs work, mount an emptyDir with a sizeLimit at /home/runner/_work"},
	"volumeStorageMedium": {Dropped, "the volume where actions-runner-controller's image keeps the runner does not exist",
		"to have jobs work in memory, mount an emptyDir with medium: Memory at /home/runner/_work"},
	"podTemplateName":         {Dropped, "Bullpen does not look for PodTemplates", "put what the PodTemplate says of jobs' pods into a file, and name it in ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE"},
	"ephemeralContainers":     {Dropped, "no pod can be made with ephemeral containers", ""},
	"workVolumeClaimTemplate": {Dropped, "it counts with containerMode kubernetes only", ""},
	"effectiveTime":           {Unneeded, "the old autoscaler writes it", ""},
}

// ownerReasons are for RunnerReplicaSets and RunnerDeployments.
var ownerReasons = map[string]reason{
	"selector":                            {Unneeded, "runners belong to an owner by their owner reference", ""},
	"effectiveTime":                       {Unneeded, "the old autoscaler writes it", ""},
	"template.metadata.name":              {Unneeded, "runners are named after their owner", ""},
	"template.metadata.generateName":      {Unneeded, "runners are named after their owner", ""},
	"template.metadata.namespace":         {Unneeded, "runners are where their owner is", ""},
	"template.metadata.creationTimestamp": {Unneeded, "the API server writes it", ""},
}

// runnerSetReasons are for what RunnerSets have of StatefulSets.
var runnerSetReasons = map[string]reason{
	"selector":             {Unneeded, "runners belong to an owner by their owner reference", ""},
	"serviceName":          {Unneeded, "no Service is needed: nothing connects to a runner", ""},
	"podManagementPolicy":  {Unneeded, "each runner has a StatefulSet of its own, and all start at once", ""},
	"updateStrategy":       {Unneeded, "a changed template replaces idle runners as spec.rollout says, and busy ones never", ""},
	"revisionHistoryLimit": {Unneeded, "no revisions are kept", ""},
	"minReadySeconds":      {Unneeded, "a runner counts once GitHub may give it a job", ""},
	"ordinals":             {Unneeded, "runners have the lowest numbers that are free", ""},
	"persistentVolumeClaimRetentionPolicy.whenScaled": {Dropped, "the volumes of runners that are gone wait for the next ones", "delete the claims that are not wanted any more"},
	"template.metadata.name":                          {Unneeded, "pods are named after their owner", ""},
	"template.metadata.creationTimestamp":             {Unneeded, "the API server writes it", ""},
}

// autoscalerReasons are for HorizontalRunnerAutoscalers.
var autoscalerReasons = map[string]reason{
	"spec.capacityReservations":          {Dropped, "actions-runner-controller's webhook server writes them for a while, and they would be over by the time the runners are there", ""},
	"spec.metrics[].scaleUpAdjustment":   {Dropped, "the number changes by a factor only, percentageBusy.upFactor", ""},
	"spec.metrics[].scaleDownAdjustment": {Dropped, "the number changes by a factor only, percentageBusy.downFactor", ""},
	"spec.metrics[].repositoryNames":     {Unneeded, "the metric does not look at repositories", ""},
	"spec.metrics[].scaleUpThreshold":    {Unneeded, "only the metric PercentageRunnersBusy has thresholds", ""},
	"spec.metrics[].scaleDownThreshold":  {Unneeded, "only the metric PercentageRunnersBusy has thresholds", ""},
	"spec.metrics[].scaleUpFactor":       {Unneeded, "only the metric PercentageRunnersBusy has factors", ""},
	"spec.metrics[].scaleDownFactor":     {Unneeded, "only the metric PercentageRunnersBusy has factors", ""},
	"spec.scaleTargetRef":                {Unneeded, "the autoscaler is a part of its target", ""},
	"spec.scaleUpTriggers[].duration":    {Unneeded, "a job counts until it is over, however long that takes", ""},
}

const noListener = "there is no listener: one server receives every event"

// scaleSetReasons are for AutoscalingRunnerSets, and for what their chart's values have in common with them.
var scaleSetReasons = map[string]reason{
	"vaultConfig": {Dropped, "runners need no credentials, and Bullpen asks no vault for its own", "put the App's key into the Secret that the chart names (github.secretName)"},
	"keyVault":    {Dropped, "runners need no credentials, and Bullpen asks no vault for its own", "put the App's key into the Secret that the chart names (github.secretName)"},
	"githubServerTLS": {Dropped, "the certificate is for the connection to GitHub, which Bullpen's server has for all pools",
		"put it into a Secret in the namespace of the release, and name that in the chart's github.caSecret: server, controller and runners trust it then"},
	"listenerTemplate":                                {Unneeded, noListener, ""},
	"listenerMetrics":                                 {Dropped, "Bullpen's server and controller have metrics of their own, for all pools", "see the alerts and dashboards in charts/bullpen/monitoring"},
	"autoscalingListener":                             {Unneeded, noListener, ""},
	"listenerServiceAccountMetadata":                  {Unneeded, noListener, ""},
	"listenerRoleMetadata":                            {Unneeded, noListener, ""},
	"listenerRoleBindingMetadata":                     {Unneeded, noListener, ""},
	"listenerConfigSecretMetadata":                    {Unneeded, noListener, ""},
	"ephemeralRunnerSetMetadata":                      {Unneeded, "there is no object between a pool and its pods", ""},
	"ephemeralRunnerMetadata":                         {Dropped, "there is no object between a pool and its pods, and the pods' labels are Bullpen's own", ""},
	"ephemeralRunnerConfigSecretMetadata":             {Unneeded, "no Secret is made for a runner", ""},
	"resourceMeta":                                    {Dropped, "the objects that it speaks of do not exist", ""},
	"controllerServiceAccount":                        {Unneeded, "actions-runner-controller needs it", ""},
	"nameOverride":                                    {Unneeded, "the old chart names its objects by it", ""},
	"fullnameOverride":                                {Unneeded, "the old chart names its objects by it", ""},
	"containerMode.kubernetesModeServiceAccount":      {Dropped, "Bullpen makes no ServiceAccount for jobs' pods", "put the annotations on the ServiceAccount that kubernetes.serviceAccountName names"},
	"containerMode.kubernetesModeAdditionalRoleRules": {Dropped, "Bullpen makes no Role for jobs' pods", "put the rules into the Role of the ServiceAccount that kubernetes.serviceAccountName names"},
}

// poolReasons are for the pod of a scale set that becomes a RunnerPool.
var poolReasons = map[string]reason{
	"":                                  {Dropped, "a pod of a RunnerPool has no such setting: its runners serve whichever account has a job, and are kept alike", "convert with --to RunnerDeployment, which takes a whole pod"},
	"metadata":                          {Dropped, "of the metadata of pods a pool can choose labels and annotations alone", ""},
	"metadata.name":                     {Unneeded, "pods are named after their pool", ""},
	"metadata.generateName":             {Unneeded, "pods are named after their pool", ""},
	"metadata.namespace":                {Unneeded, "pods are where their pool is", ""},
	"metadata.creationTimestamp":        {Unneeded, "the API server writes it", ""},
	"spec.restartPolicy":                {Unneeded, "a runner is never started twice", ""},
	"spec.initContainers":               {Dropped, "a pod of a RunnerPool has no init containers of one's own", "do what they do in the image or in the workflow, or convert with --to RunnerDeployment, which takes a whole pod"},
	"spec.containers[].imagePullPolicy": {Dropped, "the pull policy of Kubernetes holds: Always for the tag latest, IfNotPresent for others", "name the image by its digest"},
	"spec.containers[].envFrom":         {Dropped, "the environment of a RunnerPool's runners is named variable by variable", "write the variables into template.env, with valueFrom for Secrets and ConfigMaps"},
	"spec.securityContext":              {Dropped, "a pool's pods and containers have no such field", ""},
	"spec.containers[].securityContext": {Dropped, "a pool's pods and containers have no such field", ""},
	"spec.containers[].resources":       {Dropped, "a RunnerPool's shape has CPUs, memory and ephemeral storage only", "convert with --to RunnerDeployment, which takes a whole pod"},
}
