package chart

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// everything turns on what is off by default.
const everything = `
image: {pullSecrets: [{name: registry}], digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
github: {appID: 12345678, pointsPerMinute: 600}
database: {secret: {listenURLKey: direct}, tls: {caSecret: {name: ca}, clientSecret: {name: client}}}
server:
  repositoryCaps: true
  defaultLimits: {linux: "jobs=40,cpu=32,memory=64Gi,jobs-per-repository=5", macos: jobs=4}
  githubHostedLabels: [default, acme-16-core]
  otherRunnerLabels: [gpu, "arc-*"]
  recovery: {patience: 10m, every: 30s, "off": [idle_runner, stale_label]}
  keep: {jobs: 24h, tombstones: 720h, sessions: 720h, deliveries: 100h}
  catchUp: {every: 2m, queuedAskAfter: 1h, queuedStaleAfter: 48h, rerunLostJobs: 1}
  restoreHold: 2m
  traces: {endpoint: "http://collector:4318", sample: 0.1, link: "https://traces.example.com/{trace_id}"}
  env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}, {name: SECRET_PROXY, valueFrom: {secretKeyRef: {name: proxy, key: url}}}]
  podAnnotations: {a: b}
  podLabels: {team: ci}
  nodeSelector: {pool: system}
  tolerations: [{key: system, operator: Exists}]
  affinity: {nodeAffinity: {}}
  priorityClassName: system-cluster-critical
console:
  url: https://bullpen.example.com
  oidc:
    {issuer: "https://login.example.com", clientID: bullpen, clientSecret: {name: oidc}, caSecret: {name: oidc-ca}, name: "Example: SSO", usernameClaim: email, usernamePrefix: "sso:",
     groupsClaim: groups, groupsPrefix: "oidc:", groups: ["oidc:platform"], scopes: [profile, email, groups], sessionLife: 8h}
macHosts: {enabled: true, secrets: [mac-ssh, mac-password], attempts: 8, dispatchURL: "https://dispatch.example.com"}
jobContainers: {enabled: true}
controller: {workers: 4, verbose: true, env: [{name: A, value: b}], podLabels: {team: ci}, tolerations: [{operator: Exists}]}
runners: {namespaceLabels: {pod-security.kubernetes.io/audit: baseline}}
pools:
  linux-4cpu:
    platform: linux
    labels: [linux-4cpu, self-hosted]
    resources: {cpu: 4, memory: 16Gi}
    autoscaling: {enabled: true, minIdle: 2, maxReplicas: 50}
    template: {image: "ghcr.io/actions/actions-runner:latest"}
  fixed:
    platform: linux
    labels: [fixed]
    replicas: 3
    resources: {cpu: 500m, memory: 1Gi}
    template: {image: runner, runtimeClassName: kata, dind: {}}
onCall: {subjects: [{kind: Group, name: platform, apiGroup: rbac.authorization.k8s.io}]}
ingress: {enabled: true, host: bullpen.example.com, className: nginx, tlsSecretName: tls, annotations: {a: b}}
webhookService: {type: LoadBalancer, annotations: {c: d}}
dispatchService: {type: LoadBalancer, annotations: {e: f}, loadBalancerSourceRanges: [10.0.0.0/24]}
monitoring:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true}
`

const least = "github: {appID: 1}\n"

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	read := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &read))
	return read
}

func render(t *testing.T, release helmchart.Release, text string) []*unstructured.Unstructured {
	t.Helper()
	release.Values = values(t, text)
	manifests, err := helmchart.Render(release)
	require.NoError(t, err)
	objects, err := helmchart.Objects(manifests)
	require.NoError(t, err)
	require.NotEmpty(t, objects)
	return objects
}

func id(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

func find(t *testing.T, objects []*unstructured.Unstructured, wanted string) map[string]any {
	t.Helper()
	for _, object := range objects {
		if id(object) == wanted {
			return object.Object
		}
	}
	require.Fail(t, "it is not rendered", wanted)
	return nil
}

// at walks down an object; numbers in the path are indices.
func at(t *testing.T, object any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case int:
			list, ok := object.([]any)
			require.True(t, ok && step < len(list), "%v of %v", step, path)
			object = list[step]
		case string:
			fields, ok := object.(map[string]any)
			require.True(t, ok, "%v of %v", step, path)
			object = fields[step]
		}
	}
	return object
}

func container(t *testing.T, objects []*unstructured.Unstructured, deployment string) map[string]any {
	t.Helper()
	found, ok := at(t, find(t, objects, "Deployment bullpen-system/bullpen-"+deployment), "spec", "template", "spec", "containers", 0).(map[string]any)
	require.True(t, ok)
	return found
}

func TestDefaults_AreTheProductsOwn(t *testing.T) {
	objects := render(t, helmchart.Release{}, least)
	args := at(t, container(t, objects, "controller"), "args")
	require.Contains(t, args, "--microvm-runtime-classes="+strings.Join(runnerpod.DefaultMicroVMClasses(), ","))
	for _, object := range objects {
		require.NotContains(t, []string{"RunnerPool", "Ingress", "ServiceMonitor", "PrometheusRule", "CustomResourceDefinition", "Secret"}, object.GetKind())
	}
	server := container(t, objects, "server")
	require.Equal(t, "ghcr.io/bullpen-ci/bullpen:0.1.0", server["image"])
	require.EqualValues(t, 2, at(t, find(t, objects, "Deployment bullpen-system/bullpen-server"), "spec", "replicas"))
	require.EqualValues(t, 2, at(t, find(t, objects, "Deployment bullpen-system/bullpen-controller"), "spec", "replicas"))
	require.NotContains(t, strings.Join(texts(server["args"]), " "), "--recovery", "the product's own defaults are not repeated")
	require.Equal(t, "keep", at(t, find(t, objects, "Namespace /bullpen-runners"), "metadata", "annotations", "helm.sh/resource-policy"))
	volumes := at(t, find(t, objects, "Deployment bullpen-system/bullpen-server"), "spec", "template", "spec", "volumes")
	require.EqualValues(t, 0o440, at(t, volumes, 0, "projected", "defaultMode"))
	// A volume without the Secret's old webhook secret must still be mounted; one without its key must not (NET-6).
	sources, _ := at(t, volumes, 0, "projected", "sources").([]any)
	require.Len(t, sources, 2)
	require.Nil(t, at(t, sources[0], "secret", "optional"))
	require.Equal(t, true, at(t, sources[1], "secret", "optional"))
	require.Equal(t, "webhook-secret-previous", at(t, sources[1], "secret", "items", 0, "path"))
	for _, mount := range server["volumeMounts"].([]any) {
		require.Nil(t, at(t, mount, "subPath"), "what is mounted by a subPath never follows its Secret")
	}
}

func texts(list any) []string {
	var found []string
	items, _ := list.([]any)
	for _, item := range items {
		text, _ := item.(string)
		found = append(found, text)
	}
	return found
}

// Every value does what it says.
func TestSwitches(t *testing.T) {
	objects := render(t, helmchart.Release{}, everything)
	server := container(t, objects, "server")
	require.Subset(t, texts(server["args"]), []string{
		"--github-app-id=12345678", "--github-points-per-minute=600", "--repository-caps", "--github-hosted-labels=default,acme-16-core", "--other-runner-labels=gpu,arc-*",
		"--default-limits-linux=jobs=40,cpu=32,memory=64Gi,jobs-per-repository=5", "--default-limits-macos=jobs=4",
		"--recovery-patience=10m", "--recovery-every=30s", "--recovery-off=idle_runner,stale_label",
		"--keep-jobs=24h", "--keep-tombstones=720h", "--keep-sessions=720h", "--keep-deliveries=100h",
		"--catch-up-every=2m", "--queued-ask-after=1h", "--queued-stale-after=48h", "--rerun-lost-jobs=1", "--restore-hold=2m",
		"--webhooks=push", "--webhook-secret-file=/etc/bullpen/github/webhook-secret",
		"--webhook-previous-secret-file=/etc/bullpen/github/webhook-secret-previous",
		"--database-ca-file=/etc/bullpen/database/ca.crt",
		"--database-cert-file=/etc/bullpen/database/tls.crt", "--database-key-file=/etc/bullpen/database/tls.key",
	})
	secrets := at(t, find(t, objects, "Deployment bullpen-system/bullpen-server"), "spec", "template", "spec", "volumes", 1, "projected", "sources")
	require.Equal(t, "ca", at(t, secrets, 1, "secret", "name"))
	require.Equal(t, "client", at(t, secrets, 2, "secret", "name"))
	require.Subset(t, texts(server["args"]), []string{
		"--console-url=https://bullpen.example.com", "--oidc-issuer-url=https://login.example.com", "--oidc-client-id=bullpen", "--oidc-name=Example: SSO",
		"--oidc-username-claim=email", "--oidc-username-prefix=sso:", "--oidc-groups-claim=groups", "--oidc-groups-prefix=oidc:", "--oidc-groups=oidc:platform",
		"--oidc-scopes=profile,email,groups", "--oidc-session-life=8h", "--oidc-client-secret-file=/etc/bullpen/oidc/client-secret", "--oidc-ca-file=/etc/bullpen/oidc/ca.crt",
	})
	provider := at(t, find(t, objects, "Deployment bullpen-system/bullpen-server"), "spec", "template", "spec", "volumes", 2, "projected", "sources")
	require.Equal(t, "oidc", at(t, provider, 0, "secret", "name"))
	require.Equal(t, "oidc-ca", at(t, provider, 1, "secret", "name"))
	require.Contains(t, server["image"], "@sha256:0123")
	var names []string
	for _, variable := range server["env"].([]any) {
		names = append(names, variable.(map[string]any)["name"].(string))
	}
	require.Equal(t, []string{"BULLPEN_LISTEN_DATABASE_URL", "HTTPS_PROXY", "SECRET_PROXY"}, names)
	pod := at(t, find(t, objects, "Deployment bullpen-system/bullpen-server"), "spec", "template")
	require.Equal(t, "ci", at(t, pod, "metadata", "labels", "team"))
	require.Equal(t, "b", at(t, pod, "metadata", "annotations", "a"))
	require.Equal(t, map[string]any{"kubernetes.io/os": "linux", "pool": "system"}, at(t, pod, "spec", "nodeSelector"))
	require.Equal(t, "system-cluster-critical", at(t, pod, "spec", "priorityClassName"))
	require.Equal(t, "registry", at(t, pod, "spec", "imagePullSecrets", 0, "name"))
	require.Subset(t, texts(container(t, objects, "controller")["args"]), []string{"--workers=4", "--verbose"})
	require.Equal(t, "bullpen-webhooks", at(t, find(t, objects, "Ingress bullpen-system/bullpen-webhooks"), "spec", "rules", 0, "http", "paths", 0, "backend", "service", "name"))
	require.Equal(t, "LoadBalancer", at(t, find(t, objects, "Service bullpen-system/bullpen-webhooks"), "spec", "type"))
	require.Equal(t, "ClusterIP", at(t, find(t, objects, "Service bullpen-system/bullpen-admin"), "spec", "type"), "administrators' API stays inside")
	require.Equal(t, "baseline", at(t, find(t, objects, "Namespace /bullpen-runners"), "metadata", "labels", "pod-security.kubernetes.io/audit"))
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		require.Equal(t, "prometheus", at(t, find(t, objects, kind+" bullpen-system/bullpen"), "metadata", "labels", "release"))
	}

	poll := render(t, helmchart.Release{}, "github: {appID: 1, webhooks: poll}")
	args := strings.Join(texts(container(t, poll, "server")["args"]), " ")
	require.Contains(t, args, "--webhooks=poll")
	require.NotContains(t, args, "webhook-secret")

	off := render(t, helmchart.Release{}, least+"crds: {upgrade: false}\nuninstall: {drainPools: false}\nrunners: {createNamespace: false}\nserver: {preStopSeconds: 0}\n"+
		"pools: {a: {platform: linux, labels: [a], resources: {cpu: 1, memory: 1Gi}, template: {image: x}}}")
	for _, object := range off {
		require.NotContains(t, []string{"Job", "Namespace"}, object.GetKind())
	}
	require.Equal(t, "keep", at(t, find(t, off, "RunnerPool bullpen-runners/a"), "metadata", "annotations", "helm.sh/resource-policy"))
	require.Nil(t, container(t, off, "server")["lifecycle"])
}

// Macs reach the server only by what is opened for them, and stay the clients that the network policy knows.
func TestMacs_ReachTheServerAsSet(t *testing.T) {
	const dispatch = "Service bullpen-system/bullpen-dispatch"
	off := render(t, helmchart.Release{}, least)
	require.Equal(t, "ClusterIP", at(t, find(t, off, dispatch), "spec", "type"), "what hands out jobs stays inside")
	require.Nil(t, at(t, find(t, off, dispatch), "spec", "externalTrafficPolicy"), "the API server refuses it for a ClusterIP")
	require.NotContains(t, strings.Join(texts(container(t, off, "controller")["args"]), " "), "--mac-dispatch-url")

	alone := render(t, helmchart.Release{}, least+"macHosts: {dispatchURL: 'http://10.0.0.5:30080'}\ndispatchService: {type: NodePort, loadBalancerSourceRanges: [10.0.0.0/8]}\n")
	require.Contains(t, texts(container(t, alone, "controller")["args"]), "--mac-dispatch-url=http://10.0.0.5:30080", "Macs can join without MacHosts")
	require.Equal(t, "NodePort", at(t, find(t, alone, dispatch), "spec", "type"))
	require.Equal(t, "Local", at(t, find(t, alone, dispatch), "spec", "externalTrafficPolicy"))
	require.Nil(t, at(t, find(t, alone, dispatch), "spec", "loadBalancerSourceRanges"), "the API server refuses it for a NodePort")

	objects := render(t, helmchart.Release{}, everything)
	args := texts(container(t, objects, "controller")["args"])
	require.Subset(t, args, []string{"--mac-dispatch-url=https://dispatch.example.com", "--dispatch-url=http://bullpen-dispatch.bullpen-system.svc"})
	service := find(t, objects, dispatch)
	require.Equal(t, "LoadBalancer", at(t, service, "spec", "type"))
	require.Equal(t, map[string]any{"e": "f"}, at(t, service, "metadata", "annotations"))
	require.Equal(t, []any{"10.0.0.0/24"}, at(t, service, "spec", "loadBalancerSourceRanges"))
	require.Nil(t, at(t, find(t, objects, "Service bullpen-system/bullpen-webhooks"), "spec", "externalTrafficPolicy"), "webhooks are as they were")
}

// POOL-2: a pool waits for its busy runners from its first moment; and it goes when it is taken out of the values.
func TestPools_POOL2_DrainFromTheFirstMoment(t *testing.T) {
	objects := render(t, helmchart.Release{}, everything)
	for name, replicas := range map[string]any{"linux-4cpu": nil, "fixed": int64(3)} {
		pool := find(t, objects, "RunnerPool bullpen-runners/"+name)
		require.Equal(t, []any{"bullpen.dev/runner-pool-drain"}, at(t, pool, "metadata", "finalizers"))
		require.Nil(t, at(t, pool, "metadata", "annotations"), "a kept pool would serve its label for ever (CLAIM-12)")
		require.EqualValues(t, replicas, at(t, pool, "spec", "replicas"))
	}
}

// Without self-registering runners the controller gets no Secret, and no way to GitHub.
func TestSelfRegistering_NET8_RightsOnlyWhereEnabled(t *testing.T) {
	const role = "Role bullpen-runners/bullpen-self-registering"
	names := func(objects []*unstructured.Unstructured) (all []string) {
		for _, object := range objects {
			all = append(all, id(object))
		}
		return all
	}
	off := render(t, helmchart.Release{}, least)
	require.NotContains(t, names(off), role)
	controller := container(t, off, "controller")
	require.NotContains(t, strings.Join(texts(controller["args"]), " "), "github")
	require.Len(t, controller["volumeMounts"], 1)
	drain := find(t, off, "Role bullpen-runners/bullpen-drain")
	require.Len(t, at(t, drain, "rules"), 1)

	on := render(t, helmchart.Release{}, least+"selfRegistering: {enabled: true}\n")
	require.Contains(t, names(on), role)
	controller = container(t, on, "controller")
	require.Subset(t, texts(controller["args"]), []string{
		"--self-registering", "--github-url=https://api.github.com", "--github-app-id=1", "--github-private-key-file=/etc/bullpen/github/private-key.pem",
	})
	require.Len(t, controller["volumeMounts"], 2)
	require.Len(t, at(t, find(t, on, "Role bullpen-runners/bullpen-drain"), "rules"), 2)
	require.Contains(t, texts(at(t, find(t, on, "Job bullpen-system/bullpen-drain"), "spec", "template", "spec", "containers", 0, "args")), "--self-registering")

	own := container(t, render(t, helmchart.Release{}, least+"selfRegistering: {enabled: true, useApp: false}\n"), "controller")
	require.Contains(t, texts(own["args"]), "--self-registering")
	require.NotContains(t, strings.Join(texts(own["args"]), " "), "private-key")
	require.Len(t, own["volumeMounts"], 1, "each team brings its own credentials: the App's key stays with the server")
}

// What only the controller may do, only its role allows (EXCL-2); Secrets are read by their names alone, and no role has a
// wildcard.
func TestRoles_NET8_OnlyTheControllerDeletesRunners(t *testing.T) {
	deletes, secrets := map[string][]string{}, 0
	for _, object := range render(t, helmchart.Release{Upgrade: true}, everything) {
		if !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		rules, _ := object.Object["rules"].([]any)
		require.NotEmpty(t, rules, id(object))
		for i := range rules {
			verbs, resources := texts(at(t, rules, i, "verbs")), texts(at(t, rules, i, "resources"))
			require.NotContains(t, slices.Concat(verbs, resources, texts(at(t, rules, i, "apiGroups"))), "*", id(object))
			if slices.Contains(resources, "secrets") { // those that the values name, one by one, and pull Secrets, which are never read
				rule := map[string]struct{ verbs, names []string }{
					"Role bullpen-system/bullpen-machosts":        {[]string{"get"}, []string{"mac-ssh", "mac-password"}},
					"Role bullpen-system/bullpen-job-containers":  {[]string{"get", "update"}, []string{"bullpen-job-containers"}},
					"Role bullpen-runners/bullpen-job-containers": {[]string{"create", "patch"}, nil},
				}[id(object)]
				require.Equal(t, rule.verbs, verbs, id(object))
				named, _ := rules[i].(map[string]any)["resourceNames"].([]any)
				require.Equal(t, rule.names, texts(named), id(object))
				secrets++
			}
			if slices.Contains(verbs, "delete") || slices.Contains(verbs, "deletecollection") {
				deletes[id(object)] = append(deletes[id(object)], resources...)
			}
		}
	}
	require.Equal(t, map[string][]string{
		"Role bullpen-runners/bullpen-controller": {"pods", "serviceaccounts", "daemonsets"},
		"Role bullpen-runners/bullpen-drain":      {"runnerpools"},
		"ClusterRole /bullpen-admin":              {"accounts"}, // which exist in roles only
	}, deletes)
	require.Equal(t, 3, secrets)
}

// The right to add containers to pods is that to run anything in them: it is there only with the policies that limit it.
func TestJobContainers_NET8_JOB6_RightsOnlyWithTheirPolicies(t *testing.T) {
	mine := func(objects []*unstructured.Unstructured) (found []string) {
		for _, object := range objects {
			name := id(object)
			if strings.Contains(name, "job-containers") || strings.Contains(name, "added-containers") {
				found = append(found, name)
			}
		}
		return found
	}
	off := render(t, helmchart.Release{}, least)
	require.Empty(t, mine(off))
	require.NotContains(t, texts(container(t, off, "controller")["args"]), "--job-containers")
	on := render(t, helmchart.Release{}, least+"jobContainers: {enabled: true}\n")
	require.Contains(t, texts(container(t, on, "controller")["args"]), "--job-containers")
	require.ElementsMatch(t, []string{
		"Role bullpen-runners/bullpen-job-containers", "RoleBinding bullpen-runners/bullpen-job-containers",
		"Role bullpen-system/bullpen-job-containers", "RoleBinding bullpen-system/bullpen-job-containers", "Secret bullpen-system/bullpen-job-containers",
		"ValidatingAdmissionPolicy /bullpen-added-containers", "ValidatingAdmissionPolicyBinding /bullpen-added-containers",
		"ValidatingAdmissionPolicy /bullpen-job-containers", "ValidatingAdmissionPolicyBinding /bullpen-job-containers",
	}, mine(on))
	secret := find(t, on, "Secret bullpen-system/bullpen-job-containers")
	require.NotContains(t, secret, "data", "an upgrade must not change the key")
	require.NotContains(t, secret, "stringData")
}

// People on call are those that the values name. They get the admin role, pools and Events of the runners' namespace, and a port-forward.
func TestJobContainers_TheControllerReachesRegistriesAsTheValuesSay(t *testing.T) {
	const registries = "jobContainers: {enabled: true, registryCASecret: {name: registries, key: all.pem}, clusterNetworks: [20.5.0.0/16, 2600:1::/32],\n" +
		`  registryMirrors: [docker.io=https://harbor.example.com/dockerhub, "*=http://[fd00::1]:5000"]}` + "\n"
	objects := render(t, helmchart.Release{}, least+registries)
	controller := container(t, objects, "controller")
	require.Subset(t, texts(controller["args"]), []string{"--registry-ca-file=/etc/bullpen/registries/ca.crt", "--cluster-networks=20.5.0.0/16,2600:1::/32",
		"--registry-mirror=docker.io=https://harbor.example.com/dockerhub", "--registry-mirror=*=http://[fd00::1]:5000"})
	mounts, _ := controller["volumeMounts"].([]any)
	require.Contains(t, mounts, any(map[string]any{"name": "registries", "mountPath": "/etc/bullpen/registries", "readOnly": true}))
	volumes, _ := at(t, find(t, objects, "Deployment bullpen-system/bullpen-controller"), "spec", "template", "spec", "volumes").([]any)
	require.Contains(t, fmt.Sprint(volumes), "secretName:registries")
	require.Contains(t, fmt.Sprint(volumes), "key:all.pem path:ca.crt")

	for _, off := range []string{"jobContainers: {enabled: true}\n", "jobContainers: {registryCASecret: {name: registries}, clusterNetworks: [20.5.0.0/16], registryMirrors: [docker.io=https://m.io]}\n"} {
		for _, arg := range texts(container(t, render(t, helmchart.Release{}, least+off), "controller")["args"]) {
			require.NotContains(t, arg, "registry-ca-file")
			require.NotContains(t, arg, "cluster-networks")
			require.NotContains(t, arg, "registry-mirror")
		}
	}
}

func TestOnCall_NET8_MayChangePoolsAndReachTheServer(t *testing.T) {
	rules := func(objects []*unstructured.Unstructured, role string) []any {
		found, _ := find(t, objects, role)["rules"].([]any)
		return found
	}
	rule := func(group, resource string, verbs ...any) any {
		return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
	}
	objects := render(t, helmchart.Release{}, least)
	require.Equal(t, []any{
		rule("bullpen.dev", "runnerpools", "get", "list", "watch", "patch"), rule("events.k8s.io", "events", "list", "watch"),
	}, rules(objects, "Role bullpen-runners/bullpen-on-call"))
	require.Equal(t, "pods/portforward", at(t, rules(objects, "Role bullpen-system/bullpen-reach"), 1, "resources", 0))
	for _, object := range objects {
		require.False(t, strings.HasSuffix(object.GetKind(), "Binding") && strings.HasSuffix(object.GetName(), "on-call"), "%s: the values name no one", id(object))
	}

	objects = render(t, helmchart.Release{Name: "ci", Namespace: "team-a"}, everything)
	for binding, role := range map[string]string{
		"ClusterRoleBinding /ci-bullpen-on-call.team-a":         "ci-bullpen-admin.team-a",
		"RoleBinding team-a-bullpen-runners/ci-bullpen-on-call": "ci-bullpen-on-call",
		"RoleBinding team-a/ci-bullpen-reach":                   "ci-bullpen-reach",
	} {
		bound := find(t, objects, binding)
		require.Equal(t, role, at(t, bound, "roleRef", "name"))
		require.Equal(t, "platform", at(t, bound, "subjects", 0, "name"))
	}

	_, err := helmchart.Render(helmchart.Release{Values: values(t, least+"onCall: {subjects: [{kind: Team, name: platform}]}\n")})
	require.Error(t, err)
}

// What preparing Macs takes is granted to those alone who want it.
func TestMacHosts_NET8_AreOffUnlessTurnedOn(t *testing.T) {
	objects := render(t, helmchart.Release{}, least)
	for _, object := range objects {
		require.NotContains(t, object.GetName(), "machosts")
		require.NotContains(t, object.GetName(), "mac-cordons")
	}
	require.NotContains(t, texts(container(t, objects, "controller")["args"]), "--mac-hosts")
	require.NotContains(t, texts(container(t, objects, "server")["args"]), "--mac-hosts")

	objects = render(t, helmchart.Release{}, everything)
	args := texts(container(t, objects, "controller")["args"])
	require.Subset(t, args, []string{"--mac-hosts", "--mac-secrets-namespace=bullpen-system", "--mac-attempts=8"})
	find(t, objects, "ValidatingAdmissionPolicyBinding /bullpen-mac-cordons")
	require.Contains(t, texts(container(t, objects, "server")["args"]), "--mac-hosts")
	rules, _ := find(t, objects, "Role bullpen-runners/bullpen-machosts-shown")["rules"].([]any)
	require.Len(t, rules, 1, "the server shows what became of them")
	require.Equal(t, []string{"machosts"}, texts(at(t, rules, 0, "resources")))
	require.Equal(t, []string{"list", "watch"}, texts(at(t, rules, 0, "verbs")))

	_, err := helmchart.Render(helmchart.Release{Values: values(t, least+"macHosts: {enabled: true}\n")})
	require.ErrorContains(t, err, "requires macHosts.secrets")
}

// R5: what the chart says of taints by default is what the controller does without it, and a list takes its place.
func TestDisruptionTaints_R5_AreTheControllersByDefault(t *testing.T) {
	args := func(text string) []string {
		return texts(container(t, render(t, helmchart.Release{}, text), "controller")["args"])
	}
	require.Contains(t, args(least), "--disruption-taints="+strings.Join(nodes.DefaultDisruptionTaints(), ","))
	require.Contains(t, args(least+"disruptionTaints: [example.com/drain, 'a.example/*']\n"), "--disruption-taints=example.com/drain,a.example/*")
	require.Contains(t, args(least+"disruptionTaints: []\n"), "--disruption-taints=")
	for _, wrong := range []string{"'key:NoSchedule'", "'*'", "'a,b'", "''", "'x y'"} {
		_, err := helmchart.Render(helmchart.Release{Values: values(t, least+"disruptionTaints: ["+wrong+"]\n")})
		require.ErrorContains(t, err, "disruptionTaints", wrong)
	}
	for _, text := range nodes.DefaultDisruptionTaints() {
		require.NotContains(t, text, ",")
	}
}

// R5: the budget of busy runners covers no idle one, and no pod has two.
func TestEvictions_R5_EachPodHasAtMostOneBudget(t *testing.T) {
	objects := render(t, helmchart.Release{}, least)
	var selectors []klabels.Selector
	for _, name := range []string{"bullpen-runner-evictions", "bullpen-registered-evictions"} {
		found := find(t, objects, "PodDisruptionBudget bullpen-runners/"+name)
		var budget policyv1.PodDisruptionBudget
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(found, &budget))
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		require.NoError(t, err)
		selectors = append(selectors, selector)
	}
	for name, c := range map[string]struct {
		labels klabels.Set
		want   []bool
	}{
		"idle":                      {klabels.Set{"bullpen.dev/runner": "true", "bullpen.dev/runner-pool": "p"}, []bool{false, false}},
		"busy":                      {klabels.Set{"bullpen.dev/runner": "true", "bullpen.dev/runner-pool-owner": "acme"}, []bool{true, false}},
		"self-registering":          {klabels.Set{"bullpen.dev/runner": "true", "bullpen.dev/self-registering": "true"}, []bool{false, true}},
		"self-registering and busy": {klabels.Set{"bullpen.dev/runner": "true", "bullpen.dev/self-registering": "true", "bullpen.dev/runner-pool-owner": "acme"}, []bool{false, true}},
		"no runner":                 {klabels.Set{"app": "x"}, []bool{false, false}},
	} {
		require.Equal(t, c.want, []bool{selectors[0].Matches(c.labels), selectors[1].Matches(c.labels)}, name)
	}
}

func TestExample_IsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../examples/values.yaml")
	require.NoError(t, err)
	objects := render(t, helmchart.Release{}, string(text))
	find(t, objects, "RunnerPool bullpen-runners/linux-8cpu")
}
