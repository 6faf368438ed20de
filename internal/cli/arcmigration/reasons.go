package arcmigration

// runnerReasons are for the spec of legacy runners.
var runnerReasons = map[string]reason{
	"dockerMTU": {Dropped, "the Docker daemon's MTU cannot be set",
		"if packets are lost, set the MTU of jobs' networks in the workflow (docker network create --opt com.docker.network.driver.mtu=…)"},
	"dockerRegistryMirror":        {Dropped, "the Docker daemon's mirror cannot be set", "build an image from docker:28-dind with an /etc/docker/daemon.json, and set dind.image"},
	"dockerVarRunVolumeSizeLimit": {Dropped, "the volume of the daemon's socket is Bullpen's own, without a limit", ""},
	"dockerdContainerResources": {Dropped, "the Docker daemon's container has no resources of its own",
		"give the runner's container what jobs and the daemon need together: containers in a microVM share it"},
	"dockerVolumeMounts": {Dropped, "nothing can be mounted into the Docker daemon's container", "it has the work directory of jobs; if the daemon needs more, build an image from docker:28-dind and set dind.image"},
	"dockerEnv":          {Dropped, "the environment of the Docker daemon's container cannot be set", "build an image from docker:28-dind that sets it, and set dind.image"},
	"volumeSizeLimit":    {Dropped, "the volume for the runner of actions-runner-controller's image does not exist", "to limit the work directory, mount an emptyDir with a sizeLimit at /home/runner/_work"},
	"volumeStorageMedium": {Dropped, "the volume for the runner of actions-runner-controller's image does not exist",
		"for a work directory in memory, mount an emptyDir with medium: Memory at /home/runner/_work"},
	"podTemplateName":         {Dropped, "Bullpen does not read PodTemplates", "write the PodTemplate's settings for jobs' pods to a file, and set ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE to its path"},
	"ephemeralContainers":     {Dropped, "a pod cannot be created with ephemeral containers", ""},
	"workVolumeClaimTemplate": {Dropped, "it has an effect only with containerMode kubernetes", ""},
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
	"updateStrategy":       {Unneeded, "a changed template replaces idle runners by spec.rollout, and never busy ones", ""},
	"revisionHistoryLimit": {Unneeded, "no revisions are kept", ""},
	"minReadySeconds":      {Unneeded, "a runner counts once GitHub can assign it a job", ""},
	"ordinals":             {Unneeded, "runners have the lowest numbers that are free", ""},
	"persistentVolumeClaimRetentionPolicy.whenScaled": {Dropped, "the volumes of removed runners are kept for the next ones", "delete the claims that are no longer needed"},
	"template.metadata.name":                          {Unneeded, "pods are named after their owner", ""},
	"template.metadata.creationTimestamp":             {Unneeded, "the API server writes it", ""},
}

// autoscalerReasons are for HorizontalRunnerAutoscalers.
var autoscalerReasons = map[string]reason{
	"spec.capacityReservations":          {Dropped, "actions-runner-controller's webhook server writes them for a limited time, and they would expire before the runners exist", ""},
	"spec.metrics[].scaleUpAdjustment":   {Dropped, "the number changes only by a factor, percentageBusy.upFactor", ""},
	"spec.metrics[].scaleDownAdjustment": {Dropped, "the number changes only by a factor, percentageBusy.downFactor", ""},
	"spec.metrics[].repositoryNames":     {Unneeded, "the metric does not use repositories", ""},
	"spec.metrics[].scaleUpThreshold":    {Unneeded, "only the metric PercentageRunnersBusy has thresholds", ""},
	"spec.metrics[].scaleDownThreshold":  {Unneeded, "only the metric PercentageRunnersBusy has thresholds", ""},
	"spec.metrics[].scaleUpFactor":       {Unneeded, "only the metric PercentageRunnersBusy has factors", ""},
	"spec.metrics[].scaleDownFactor":     {Unneeded, "only the metric PercentageRunnersBusy has factors", ""},
	"spec.scaleTargetRef":                {Unneeded, "the autoscaler becomes a part of its target", ""},
	"spec.scaleUpTriggers[].duration":    {Unneeded, "a job counts until it completes", ""},
}

const noListener = "there is no listener: one server receives every event"

// scaleSetReasons are for AutoscalingRunnerSets, and for what their chart's values have in common with them.
var scaleSetReasons = map[string]reason{
	"vaultConfig": {Dropped, "runners need no credentials, and Bullpen reads its own from no vault", "put the App's key into the Secret that the chart's github.secret.name names"},
	"keyVault":    {Dropped, "runners need no credentials, and Bullpen reads its own from no vault", "put the App's key into the Secret that the chart's github.secret.name names"},
	"githubServerTLS": {Dropped, "the certificate is for connections to GitHub, which Bullpen's server makes for all pools",
		"put it into a Secret in the namespace of the release, and set the chart's github.caSecret: server, controller and runners then trust it"},
	"listenerTemplate":                                {Unneeded, noListener, ""},
	"listenerMetrics":                                 {Dropped, "Bullpen's server and controller have their own metrics for all pools", "see the alerts and dashboards in charts/bullpen/monitoring"},
	"autoscalingListener":                             {Unneeded, noListener, ""},
	"listenerServiceAccountMetadata":                  {Unneeded, noListener, ""},
	"listenerRoleMetadata":                            {Unneeded, noListener, ""},
	"listenerRoleBindingMetadata":                     {Unneeded, noListener, ""},
	"listenerConfigSecretMetadata":                    {Unneeded, noListener, ""},
	"ephemeralRunnerSetMetadata":                      {Unneeded, "there is no object between a pool and its pods", ""},
	"ephemeralRunnerMetadata":                         {Dropped, "there is no object between a pool and its pods, and Bullpen sets the pods' labels", ""},
	"ephemeralRunnerConfigSecretMetadata":             {Unneeded, "no Secret is created for a runner", ""},
	"resourceMeta":                                    {Dropped, "its objects do not exist", ""},
	"controllerServiceAccount":                        {Unneeded, "actions-runner-controller needs it", ""},
	"nameOverride":                                    {Unneeded, "the old chart names its objects by it", ""},
	"fullnameOverride":                                {Unneeded, "the old chart names its objects by it", ""},
	"containerMode.kubernetesModeServiceAccount":      {Dropped, "Bullpen creates no ServiceAccount for jobs' pods", "set the annotations on the ServiceAccount of kubernetes.serviceAccountName"},
	"containerMode.kubernetesModeAdditionalRoleRules": {Dropped, "Bullpen creates no Role for jobs' pods", "put the rules into the Role of the ServiceAccount of kubernetes.serviceAccountName"},
}

// poolReasons are for the pod of a scale set that becomes a RunnerPool.
var poolReasons = map[string]reason{
	"":                                  {Dropped, "a pod of a RunnerPool has no such setting: its runners serve all accounts, and are all the same", "convert with --to RunnerDeployment, which keeps the whole pod"},
	"metadata":                          {Dropped, "a pool can set only labels and annotations of its pods' metadata", ""},
	"metadata.name":                     {Unneeded, "pods are named after their pool", ""},
	"metadata.generateName":             {Unneeded, "pods are named after their pool", ""},
	"metadata.namespace":                {Unneeded, "pods are where their pool is", ""},
	"metadata.creationTimestamp":        {Unneeded, "the API server writes it", ""},
	"spec.restartPolicy":                {Unneeded, "a runner is never started twice", ""},
	"spec.initContainers":               {Dropped, "a pod of a RunnerPool cannot have additional init containers", "move their work into the image or the workflow, or convert with --to RunnerDeployment, which keeps the whole pod"},
	"spec.containers[].imagePullPolicy": {Dropped, "Kubernetes' default pull policy applies: Always for the tag latest, IfNotPresent for others", "use the image's digest"},
	"spec.containers[].envFrom":         {Dropped, "the environment of a RunnerPool's runners is a list of variables", "add the variables to template.env, with valueFrom for Secrets and ConfigMaps"},
	"spec.securityContext":              {Dropped, "a pool's pods and containers have no such field", ""},
	"spec.containers[].securityContext": {Dropped, "a pool's pods and containers have no such field", ""},
	"spec.containers[].resources":       {Dropped, "a RunnerPool's resources are CPUs, memory and ephemeral storage only", "convert with --to RunnerDeployment, which keeps the whole pod"},
}
