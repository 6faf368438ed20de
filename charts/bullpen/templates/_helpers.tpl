{{/* The prefix of all names of this release; at most 40 characters, so that every suffix fits into 63. */}}
{{- define "bullpen.fullname" -}}
{{- $name := .Release.Name | replace "." "-" }}
{{- if not (contains "bullpen" $name) }}{{ $name = printf "%s-bullpen" $name }}{{ end }}
{{- $name = default $name .Values.fullnameOverride }}
{{- if gt (len $name) 40 }}{{ $name = printf "%s-%s" ($name | trunc 31 | trimSuffix "-") ($name | sha256sum | trunc 8) }}{{ end }}
{{- $name }}
{{- end }}

{{/* The name of a namespaced object: (dict "part" "server" "root" $). */}}
{{- define "bullpen.name" -}}
{{ include "bullpen.fullname" .root }}-{{ .part }}
{{- end }}

{{/*
The name of a cluster-scoped object. It includes the release's namespace, so that releases with the same name differ, unless the namespace
is named after the release. No namespace contains a dot.
*/}}
{{- define "bullpen.clusterName" -}}
{{- $full := include "bullpen.fullname" .root }}
{{- $full }}-{{ .part }}
{{- if ne .root.Release.Namespace (printf "%s-system" $full) }}.{{ .root.Release.Namespace }}{{ end }}
{{- end }}

{{/* The namespace of pools and runners. */}}
{{- define "bullpen.runnersNamespace" -}}
{{- $default := printf "%s-bullpen-runners" .Release.Namespace }}
{{- if hasSuffix "-system" .Release.Namespace }}{{ $default = printf "%s-runners" (trimSuffix "-system" .Release.Namespace) }}{{ end }}
{{- if gt (len $default) 63 }}{{ $default = printf "%s-%s" ($default | trunc 54 | trimSuffix "-") ($default | sha256sum | trunc 8) }}{{ end }}
{{- $name := default $default .Values.runners.namespace }}
{{- if eq $name .Release.Namespace }}
{{- fail (printf "runners.namespace must not be %s, the namespace of the server and the controller, because runners execute untrusted code" $name) }}
{{- end }}
{{- $name }}
{{- end }}

{{/* The user name of a ServiceAccount of this release. */}}
{{- define "bullpen.principal" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "bullpen.name" . }}
{{- end }}

{{/* The labels that select the pods of a component; they never change. */}}
{{- define "bullpen.selector" -}}
app.kubernetes.io/name: bullpen
app.kubernetes.io/instance: {{ include "bullpen.fullname" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The labels of every object: (dict "component" "server" "root" $). */}}
{{- define "bullpen.labels" -}}
{{ include "bullpen.selector" . }}
app.kubernetes.io/part-of: bullpen
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The image of every part. */}}
{{- define "bullpen.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag }}
{{- .Values.image.repository }}:{{ $tag }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The pod-level part of a pod spec: security context and scheduling. */}}
{{- define "bullpen.podSpec" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ include "bullpen.name" . }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "bullpen.selector" (dict "component" $.part "root" $.root) | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

{{/* The security context of all containers of this chart. */}}
{{- define "bullpen.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The cluster-internal host name of a Service of this release: (dict "part" "dispatch" "root" $). */}}
{{- define "bullpen.url" -}}
http://{{ include "bullpen.name" . }}.{{ .root.Release.Namespace }}.svc
{{- end }}

{{/*
Whether Helm itself installs this release and runs its hooks. Tools based on "helm template" treat a hook like any other object, and would
run the Job that drains the pools as soon as it is applied. There, lookup returns nothing.
*/}}
{{- define "bullpen.hooks" -}}
{{- if or (eq .Values.hooks "always") (and (eq .Values.hooks "auto") (lookup "v1" "Namespace" "" "kube-system")) }}true{{ end }}
{{- end }}

{{/* The annotations of a hook that is deleted when it succeeds: (dict "at" "pre-upgrade" "weight" "-1"). */}}
{{- define "bullpen.hook" -}}
helm.sh/hook: {{ .at }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The pod spec of a one-off Job. */}}
{{- define "bullpen.oncePodSpec" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .root.Values.server.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.server.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
