{{/* Name of the release's objects. */}}
{{- define "speculative.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- $chart := .Values.nameOverride | default .Chart.Name -}}
{{- contains $chart .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $chart) | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "speculative.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "speculative.name" .) -}}
{{- end -}}

{{/* Labels that select the operator's pod: never changed, not by nameOverride either. */}}
{{- define "speculative.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of the user's for every object, as YAML. They may replace no label by which the operator is found. */}}
{{- define "speculative.commonLabels" -}}
{{- $common := mergeOverwrite (dict) ((.Values.global).commonLabels | default dict) .Values.commonLabels -}}
{{- include "speculative.refuseSelector" (dict "root" . "value" "commonLabels" "labels" $common) -}}
{{- with $common -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "speculative.refuseSelector" -}}
{{- $value := .value -}}
{{- $labels := .labels -}}
{{- $own := dict "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- range $key, $held := mergeOverwrite $own (include "speculative.selector" .root | fromYaml) -}}
{{- if ne (get $labels $key | default $held) $held -}}
{{- fail (printf "%s has %s: %s, but selectors or Helm find the operator by %s: remove it; nameOverride and fullnameOverride change names" $value $key (get $labels $key) $held) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of an object: the chart's, with those of the user in place of or beside them. */}}
{{- define "speculative.labels" -}}
{{- include "speculative.labelsWith" (dict "root" . "more" dict) -}}
{{- end -}}

{{/* The same with the labels .more, which take precedence. */}}
{{- define "speculative.labelsWith" -}}
{{- $own := include "speculative.ownLabels" .root -}}
{{- with mergeOverwrite (include "speculative.commonLabels" .root | fromYaml) .more -}}
{{- mergeOverwrite ($own | fromYaml) . | toYaml -}}
{{- else -}}
{{- $own -}}
{{- end -}}
{{- end -}}

{{/* Names of Secrets for the image's registry, as YAML of a pod. */}}
{{- define "speculative.pullSecrets" -}}
{{- $names := list -}}
{{- range concat .Values.imagePullSecrets ((.Values.global).imagePullSecrets | default list) -}}
{{- if kindIs "map" . -}}
{{- $names = append $names .name -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- range uniq $names }}
- name: {{ . }}
{{- end -}}
{{- end -}}

{{- define "speculative.ownLabels" -}}
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
{{- fail "image.repository is empty and this chart was not published with an image: build and push one (make image), then add --set image.repository=REGISTRY/speculative-operator" -}}
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
{{- merge (deepCopy .own) $labels | toYaml -}}
{{- end -}}
