{{/* The name of the release's objects; at most 45 characters, so that every suffix fits into 63. */}}
{{- define "jobyard.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- end -}}
{{- $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}

{{- define "jobyard.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "jobyard.labels" -}}
{{ include "jobyard.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "jobyard.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "jobyard.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.create is false: set serviceAccount.name to an existing account." .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The label value that the manager puts on runner pods; it is shortened there in the same way. */}}
{{- define "jobyard.instance" -}}
{{- .Values.runners.instance | default (include "jobyard.fullname" .) -}}
{{- end -}}

{{- define "jobyard.secretName" -}}
{{- .Values.secrets.existingSecret | default (include "jobyard.fullname" .) -}}
{{- end -}}

{{/* "true" if the chart runs its own Redis, else empty. */}}
{{- define "jobyard.bundledRedis" -}}
{{- if not (or .Values.store.url .Values.store.existingSecret) -}}true{{- end -}}
{{- end -}}

{{- define "jobyard.redisName" -}}
{{- include "jobyard.fullname" . }}-redis
{{- end -}}

{{- define "jobyard.redisSecretName" -}}
{{- .Values.redis.existingSecret | default (include "jobyard.redisName" .) -}}
{{- end -}}

{{/*
A value of an existing Secret of this release, so that upgrades keep what was generated. Made once per rendering: the
Secret and the checksum of the pods must agree. Arguments: root, name and key of the Secret, the value if there is none.
*/}}
{{- define "jobyard.kept" -}}
{{- $generated := .root.Values.generated | default dict -}}
{{- $id := printf "%s/%s" .name .key -}}
{{- if not (hasKey $generated $id) -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .name | default dict -}}
{{- $encoded := dig "data" .key "" $found -}}
{{- $_ := set $generated $id (ternary ($encoded | b64dec) .new (ne $encoded "")) -}}
{{- $_ := set .root.Values "generated" $generated -}}
{{- end -}}
{{- get $generated $id -}}
{{- end -}}

{{- define "jobyard.adminToken" -}}
{{- $new := printf "jy_%s_%s" (randAlphaNum 32 | sha256sum | trunc 12) (randAlphaNum 43) -}}
{{- $kept := dict "root" . "name" (include "jobyard.fullname" .) "key" "admin-token" "new" $new -}}
{{- .Values.secrets.adminToken | default (include "jobyard.kept" $kept) -}}
{{- end -}}

{{- define "jobyard.redisPassword" -}}
{{- $kept := dict "root" . "name" (include "jobyard.redisName" .) "key" "password" "new" (randAlphaNum 43) -}}
{{- .Values.redis.password | default (include "jobyard.kept" $kept) -}}
{{- end -}}

{{/* The content of the chart's own Secret, as YAML. */}}
{{- define "jobyard.secretData" -}}
{{- $data := dict "admin-token" (include "jobyard.adminToken" .) -}}
{{- if .Values.runners.enabled -}}
{{- $_ := set $data "webhook-secrets" (join "\n" .Values.secrets.webhookSecrets) -}}
{{- $key := include "jobyard.githubKey" . -}}
{{- $_ := set $data $key (ternary .Values.secrets.githubToken .Values.secrets.githubPrivateKey (eq $key "github-token")) -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{- define "jobyard.githubKey" -}}
{{- ternary "github-private-key" "github-token" (not (empty .Values.runners.github_app_id)) -}}
{{- end -}}

{{/* The namespaces of this cluster in which runners run, as a JSON list. */}}
{{- define "jobyard.runnerNamespaces" -}}
{{- $found := list -}}
{{- $own := dict -}}
{{- if .Values.runners.enabled -}}
{{- range $name, $cluster := .Values.runners.clusters -}}
{{- if not (dig "kubeconfigSecret" "" $cluster) -}}
{{- $namespace := dig "namespace" "" $cluster | default $.Release.Namespace -}}
{{- $_ := set $own $name $namespace -}}
{{- end -}}
{{- end -}}
{{- range .Values.runners.profiles -}}
{{- $cluster := .cluster | default "default" -}}
{{- if hasKey $own $cluster -}}
{{- $found = append $found (.namespace | default (get $own $cluster)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* Fails where values contradict each other; the schema checks each of them alone. */}}
{{- define "jobyard.validate" -}}
{{- $secrets := .Values.secrets -}}
{{- $given := or $secrets.githubToken $secrets.githubPrivateKey $secrets.webhookSecrets $secrets.adminToken -}}
{{- if and $secrets.existingSecret $given -}}
{{- fail "secrets.existingSecret and other keys of secrets are both set. Put all values into that Secret, or remove it." -}}
{{- end -}}
{{- if and .Values.store.url .Values.store.existingSecret -}}
{{- fail "store.url and store.existingSecret are both set. Remove one." -}}
{{- end -}}
{{- if and .Values.redis.password .Values.redis.existingSecret -}}
{{- fail "redis.password and redis.existingSecret are both set. Remove one." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.enabled needs ingress.host." -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.serviceMonitor.tokenSecret) -}}
{{- fail "serviceMonitor.enabled needs serviceMonitor.tokenSecret: the metrics of the API need a token." -}}
{{- end -}}
{{- if .Values.runners.enabled -}}
{{- include "jobyard.validateRunners" . -}}
{{- else if eq .Values.mode "separate" -}}
{{- fail "mode: separate runs a runner manager, but runners.enabled is false. Set mode: up." -}}
{{- end -}}
{{- end -}}

{{- define "jobyard.validateRunners" -}}
{{- if not .Values.runners.profiles -}}
{{- fail "runners.profiles is empty: no job would get a runner. Add a profile with a name, labels and an image." -}}
{{- end -}}
{{- $names := list -}}
{{- range .Values.runners.profiles -}}
{{- if has .name $names -}}
{{- fail (printf "Two profiles in runners.profiles are named %s. Names must be unique." .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if not (hasKey $.Values.runners.clusters (.cluster | default "default")) -}}
{{- fail (printf "Profile %s names the cluster %s, which is not in runners.clusters." .name (.cluster | default "default")) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.secrets.existingSecret -}}
{{- $key := ternary "githubPrivateKey" "githubToken" (not (empty .Values.runners.github_app_id)) -}}
{{- $other := ternary "githubToken" "githubPrivateKey" (eq $key "githubPrivateKey") -}}
{{- if not (get .Values.secrets $key) -}}
{{- fail (printf "Cannot reach GitHub: set secrets.%s or secrets.existingSecret." $key) -}}
{{- end -}}
{{- if get .Values.secrets $other -}}
{{- fail (printf "secrets.%s is set but not used: runners.github_app_id decides between an App and a token." $other) -}}
{{- end -}}
{{- if not .Values.secrets.webhookSecrets -}}
{{- fail "Webhooks cannot be verified: set secrets.webhookSecrets or secrets.existingSecret." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.resourceQuota.enabled (has .Release.Namespace (include "jobyard.runnerNamespaces" . | fromJsonArray)) -}}
{{- fail "resourceQuota would also count the pods of the release. Give runners a namespace of their own: runners.clusters.default.namespace." -}}
{{- end -}}
{{- end -}}
