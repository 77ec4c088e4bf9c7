{{/* jobyard.yaml, without secrets. */}}
{{- define "jobyard.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "server" (merge (dict "host" "0.0.0.0" "port" 8080) ($config.server | default dict)) -}}
{{- if include "jobyard.bundledRedis" . -}}
{{- $_ := set $config "store" (dict "url" (printf "redis://%s:6379/0" (include "jobyard.redisName" .))) -}}
{{- end -}}
{{- if .Values.runners.enabled -}}
{{- $_ := set $config "runners" (include "jobyard.configRunners" . | fromJson) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "jobyard.configRunners" -}}
{{- $runners := deepCopy .Values.runners -}}
{{- $_ := set $runners "instance" (include "jobyard.instance" .) -}}
{{- if not $runners.github_app_id -}}
{{- $_ := unset $runners "github_app_id" -}}
{{- end -}}
{{- if not $runners.warm_url -}}
{{- $host := printf "%s.%s.svc" (include "jobyard.fullname" .) .Release.Namespace -}}
{{- $_ := set $runners "warm_url" (printf "http://%s:%d" $host (int .Values.service.port)) -}}
{{- end -}}
{{- if .Values.githubCa.existingConfigMap -}}
{{- $_ := set $runners "github_ca_file" (printf "/etc/jobyard/github-ca/%s" .Values.githubCa.key) -}}
{{- end -}}
{{- range $name, $cluster := $runners.clusters -}}
{{- $made := merge (dict "backend" "kubernetes") (omit ($cluster | default dict) "kubeconfigSecret" "kubeconfigKey") -}}
{{- if dig "kubeconfigSecret" "" ($cluster | default dict) -}}
{{- $key := $cluster.kubeconfigKey | default "config" -}}
{{- $_ := set $made "kubeconfig" (printf "/etc/jobyard/kubeconfig/%s/%s" $name $key) -}}
{{- else if not $made.namespace -}}
{{- $_ := set $made "namespace" $.Release.Namespace -}}
{{- end -}}
{{- $_ := set $runners.clusters $name $made -}}
{{- end -}}
{{- toJson $runners -}}
{{- end -}}
