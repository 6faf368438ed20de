{{/* Connections to GitHub: proxies, a private CA, and the egress rules that runners need for them. */}}

{{/* The parts of a URL whose scheme may be missing. */}}
{{- define "bullpen.parse" -}}
{{- $text := . }}
{{- if not (contains "://" $text) }}{{ $text = printf "https://%s" $text }}{{ end }}
{{- $at := urlParse $text }}
{{- $port := regexFind ":[0-9]+$" $at.host | trimPrefix ":" | default (eq $at.scheme "http" | ternary "80" "443") }}
{{- $address := "" }}
{{- if contains ":" $at.hostname }}{{ $address = printf "%s/128" $at.hostname }}
{{- else if regexMatch "^[0-9]{1,3}([.][0-9]{1,3}){3}$" $at.hostname }}{{ $address = printf "%s/32" $at.hostname }}{{ end }}
{{- dict "scheme" $at.scheme "host" (lower $at.hostname) "port" (int $port) "cidr" $address | toJson }}
{{- end }}

{{/* Whether there is a proxy. */}}
{{- define "bullpen.proxied" -}}
{{- with .Values.proxy }}{{ if or .http .https (and .secret.name (or .secret.httpKey .secret.httpsKey)) }}true{{ end }}{{ end }}
{{- end }}

{{/*
Hosts that bypass the proxy: this pod, the cluster's Services and its API server, a trace collector with plain http, and those in the
values. Tools agree on ".example.com", but not on "*.example.com".
*/}}
{{- define "bullpen.noProxy" -}}
{{- $direct := list "localhost" "127.0.0.1" "::1" ".svc" ".cluster.local" "$(KUBERNETES_SERVICE_HOST)" }}
{{- with .Values.server.traces.endpoint }}
{{- $collector := include "bullpen.parse" . | fromJson }}
{{- if eq $collector.scheme "http" }}{{ $direct = append $direct $collector.host }}{{ end }}
{{- end }}
{{- range .Values.proxy.noProxy }}
{{- $direct = append $direct (hasPrefix "*." . | ternary (trimPrefix "*" .) .) }}
{{- end }}
{{- join "," (uniq $direct) }}
{{- end }}

{{/*
The proxy as variables of a container: (dict "root" $ "own" $v.env). A variable of the container overrides it. URLs with a password are
read from their Secret (NET-12).
*/}}
{{- define "bullpen.proxyEnv" -}}
{{- if include "bullpen.proxied" .root }}
{{- $proxy := .root.Values.proxy }}
{{- $own := list }}
{{- range .own }}{{ $own = append $own (upper .name) }}{{ end }}
{{- if not (has "HTTP_PROXY" $own) }}
{{- if and $proxy.secret.name $proxy.secret.httpKey }}
- name: HTTP_PROXY
  valueFrom:
    secretKeyRef: {name: {{ $proxy.secret.name }}, key: {{ $proxy.secret.httpKey }}}
{{- else if $proxy.http }}
- {name: HTTP_PROXY, value: {{ $proxy.http | quote }}}
{{- end }}
{{- end }}
{{- if not (has "HTTPS_PROXY" $own) }}
{{- if and $proxy.secret.name $proxy.secret.httpsKey }}
- name: HTTPS_PROXY
  valueFrom:
    secretKeyRef: {name: {{ $proxy.secret.name }}, key: {{ $proxy.secret.httpsKey }}}
{{- else if $proxy.https }}
- {name: HTTPS_PROXY, value: {{ $proxy.https | quote }}}
{{- end }}
{{- end }}
{{- if not (has "NO_PROXY" $own) }}
- {name: NO_PROXY, value: {{ include "bullpen.noProxy" .root | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* The controller's arguments for the runners' connections to GitHub. */}}
{{- define "bullpen.runnerEgress" -}}
{{- $proxy := .Values.proxy }}
{{- if and .Values.runners.proxy (include "bullpen.proxied" .) }}
{{- if and $proxy.secret.name $proxy.secret.httpKey }}
- {{ printf "--runner-http-proxy-from=%s/%s" $proxy.secret.name $proxy.secret.httpKey | quote }}
{{- else if $proxy.http }}
- {{ printf "--runner-http-proxy=%s" $proxy.http | quote }}
{{- end }}
{{- if and $proxy.secret.name $proxy.secret.httpsKey }}
- {{ printf "--runner-https-proxy-from=%s/%s" $proxy.secret.name $proxy.secret.httpsKey | quote }}
{{- else if $proxy.https }}
- {{ printf "--runner-https-proxy=%s" $proxy.https | quote }}
{{- end }}
- {{ printf "--runner-no-proxy=%s" (include "bullpen.noProxy" .) | quote }}
{{- end }}
{{- with .Values.github.caSecret }}
{{- if and .name $.Values.runners.githubCA }}
- {{ printf "--runner-ca-from=%s/%s" .name .key | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The source of a projected volume with the CA as ca.crt. */}}
{{- define "bullpen.githubCA" -}}
{{- with .Values.github.caSecret }}
{{- if .name }}
- secret:
    name: {{ .name }}
    items:
      - {key: {{ .key }}, path: ca.crt}
{{- end }}
{{- end }}
{{- end }}

{{/* The private address ranges of GitHub, as a JSON list. */}}
{{- define "bullpen.githubCIDRs" -}}
{{- $at := include "bullpen.parse" .Values.github.url | fromJson }}
{{- concat (without (list $at.cidr) "") .Values.github.cidrs | uniq | toJson }}
{{- end }}

{{/* The same of the runners' proxies. */}}
{{- define "bullpen.proxyCIDRs" -}}
{{- $ranges := list }}
{{- if and .Values.runners.proxy (include "bullpen.proxied" .) }}
{{- range without (list .Values.proxy.http .Values.proxy.https) "" }}
{{- $at := include "bullpen.parse" . | fromJson }}
{{- $ranges = concat $ranges (without (list $at.cidr) "") }}
{{- end }}
{{- $ranges = concat $ranges .Values.proxy.cidrs }}
{{- end }}
{{- uniq $ranges | toJson }}
{{- end }}

{{/* Egress rules for a GitHub and a proxy at private addresses. */}}
{{- define "bullpen.egressRules" -}}
{{- $at := include "bullpen.parse" .Values.github.url | fromJson }}
{{- with include "bullpen.githubCIDRs" . | fromJsonArray }}
- to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  ports: # the API and git, by https and by SSH
    {{- range uniq (list (int $at.port) 443 22) }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- with include "bullpen.proxyCIDRs" . | fromJsonArray }}
- to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- if not $.Values.proxy.secret.name }}
  ports:
    {{- $ports := list }}
    {{- range without (list $.Values.proxy.http $.Values.proxy.https) "" }}
    {{- $proxy := include "bullpen.parse" . | fromJson }}
    {{- $ports = append $ports (int $proxy.port) }}
    {{- end }}
    {{- range uniq $ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Hosts that runners cannot reach if their address is private, which a host name does not show. */}}
{{- define "bullpen.egressDoubts" -}}
{{- if .Values.networkPolicy.enabled }}
{{- $at := include "bullpen.parse" .Values.github.url | fromJson }}
{{- if not (or (eq $at.host "github.com") (hasSuffix ".github.com" $at.host) (hasSuffix ".ghe.com" $at.host) (include "bullpen.githubCIDRs" . | fromJsonArray)) }}
- {{ $at.host }}: set github.cidrs to its ranges, such as [10.1.2.0/24]
{{- end }}
{{- if and .Values.runners.proxy (include "bullpen.proxied" .) (not (include "bullpen.proxyCIDRs" . | fromJsonArray)) }}
- the proxy: set proxy.cidrs to its ranges or, if it is in this cluster, networkPolicy.additionalEgress to its pods
{{- end }}
{{- end }}
{{- end }}
