{{/* Name of the release's objects. */}}
{{- define "speculative.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "speculative.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "speculative.name" .) -}}
{{- end -}}

{{/* Labels that select the operator's pod: never changed. */}}
{{- define "speculative.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "speculative.labels" -}}
{{ include "speculative.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ .Chart.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "speculative.image" -}}
{{- with .Values.image -}}
{{- if not .repository -}}
{{- fail "image.repository is empty and nobody publishes the operator's image: build and push one (make image), then add --set image.repository=REGISTRY/speculative-operator" -}}
{{- end -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "speculative.prometheusUrl" -}}
{{- .Values.prometheus.url | default "http://prometheus-operated.monitoring.svc:9090" -}}
{{- end -}}

{{/* Namespace of the Service in it; empty where it names none. */}}
{{- define "speculative.prometheusNamespace" -}}
{{- $host := (urlParse (include "speculative.prometheusUrl" .)).host -}}
{{- if regexMatch "^[^.:]+[.][^.:]+[.]svc([.:]|$)" $host -}}
{{- index (splitList "." $host) 1 -}}
{{- end -}}
{{- end -}}

{{/* Prometheus objects, as far as Helm may look: those in that namespace, or all. */}}
{{- define "speculative.servers" -}}
{{- $found := list -}}
{{- if and .Values.metrics.followPrometheus (not .Values.watchNamespaces) (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/Prometheus") -}}
{{- $found = (lookup "monitoring.coreos.com/v1" "Prometheus" "" "").items -}}
{{- end -}}
{{- $namespace := include "speculative.prometheusNamespace" . -}}
{{- $ours := list -}}
{{- range $found -}}
{{- if eq .metadata.namespace $namespace -}}
{{- $ours = append $ours . -}}
{{- end -}}
{{- end -}}
{{- dict "items" ($ours | default $found) | toJson -}}
{{- end -}}

{{/* Namespaces from which metrics are scraped, as a JSON list. */}}
{{- define "speculative.scrapers" -}}
{{- $namespaces := .Values.networkPolicy.namespaces -}}
{{- if not $namespaces -}}
{{- $namespaces = list (include "speculative.prometheusNamespace" .) | compact -}}
{{- if has "openshift-monitoring" $namespaces -}}
{{- /* Thanos answers from there; another Prometheus scrapes what is not OpenShift's own. */ -}}
{{- $namespaces = append $namespaces "openshift-user-workload-monitoring" -}}
{{- end -}}
{{- if not .Values.prometheus.url -}}
{{- range (include "speculative.servers" . | fromJson).items -}}
{{- $namespaces = append $namespaces .metadata.namespace -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- uniq $namespaces | toJson -}}
{{- end -}}

{{/* Labels .own, and those that all of these servers ask for in their selector .field, as the operator finds them for
serving pods: none with a prefix, which belong to other programs. */}}
{{- define "speculative.selected" -}}
{{- $labels := dict -}}
{{- $left := list -}}
{{- range (include "speculative.servers" .root | fromJson).items -}}
{{- range $key, $value := dig "spec" $.field "matchLabels" dict . -}}
{{- if or (contains "/" $key) (ne (get $labels $key | default $value) $value) -}}
{{- $left = append $left $key -}}
{{- end -}}
{{- $_ := set $labels $key $value -}}
{{- end -}}
{{- end -}}
{{- range $left -}}
{{- $_ := unset $labels . -}}
{{- end -}}
{{- with merge (deepCopy .own) $labels -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
