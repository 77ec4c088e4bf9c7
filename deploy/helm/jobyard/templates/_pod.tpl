{{/*
A Deployment of jobyard. Arguments: root, component (up, server or manager), args, replicas, resources, port name, and
whether it launches runners.
*/}}
{{- define "jobyard.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "jobyard.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ int .replicas }}
  selector:
    matchLabels:
      {{- include "jobyard.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels:
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- include "jobyard.selectorLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
      annotations:
        {{- with $root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        # Pods read the files once, so a change of their content replaces them.
        checksum/config: {{ include "jobyard.config" $root | sha256sum }}
        checksum/secrets: {{ include "jobyard.secretsChecksum" $root | quote }}
    spec:
      {{- include "jobyard.podSpec" . | nindent 6 }}
{{- end -}}

{{/* Of all values that the chart puts into Secrets. 16 bits: enough to notice a change, too few to guess a value from. */}}
{{- define "jobyard.secretsChecksum" -}}
{{- $all := list .Values.store.url -}}
{{- if not .Values.secrets.existingSecret -}}
{{- $all = append $all (include "jobyard.secretData" .) -}}
{{- end -}}
{{- if and (include "jobyard.bundledRedis" .) (not .Values.redis.existingSecret) -}}
{{- $all = append $all (include "jobyard.redisPassword" .) -}}
{{- end -}}
{{- toJson $all | sha256sum | trunc 4 -}}
{{- end -}}

{{- define "jobyard.podSpec" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
serviceAccountName: {{ include "jobyard.serviceAccountName" $root }}
automountServiceAccountToken: {{ .launches }}
# Variables for each Service of the namespace would include JOBYARD_PORT and REDIS_PORT, which mean something else here.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: jobyard
    image: {{ printf "%s:%s" $values.image.repository ($values.image.tag | default $root.Chart.AppVersion) | quote }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{ toJson .args }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    env:
      {{- include "jobyard.env" . | nindent 6 }}
    ports:
      - {name: http, containerPort: {{ .port }}}
    startupProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 2
      failureThreshold: 60
    livenessProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 5
      timeoutSeconds: 5
    resources:
      {{- toYaml .resources | nindent 6 }}
    volumeMounts:
      {{- include "jobyard.volumeMounts" . | nindent 6 }}
volumes:
  {{- include "jobyard.volumes" . | nindent 2 }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "jobyard.selectorLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}

{{- define "jobyard.env" -}}
{{- $values := .root.Values -}}
- {name: JOBYARD_CONFIG, value: /etc/jobyard/config/jobyard.yaml}
- {name: JOBYARD_ADMIN_TOKEN_FILE, value: /etc/jobyard/secrets/admin-token}
{{- if $values.runners.enabled }}
{{- $key := include "jobyard.githubKey" .root }}
- {name: JOBYARD_RUNNERS__{{ $key | upper | replace "-" "_" }}_FILE, value: /etc/jobyard/secrets/{{ $key }}}
- {name: JOBYARD_RUNNERS__WEBHOOK_SECRETS_FILE, value: /etc/jobyard/secrets/webhook-secrets}
{{- end }}
{{- if include "jobyard.bundledRedis" .root }}
- {name: REDIS_PASSWORD_FILE, value: /etc/jobyard/secrets/redis-password}
{{- else }}
- {name: JOBYARD_STORE_FILE, value: /etc/jobyard/secrets/store-url}
{{- end }}
{{- if eq .component "manager" }}
- {name: JOBYARD_WORKER__HEALTH_HOST, value: 0.0.0.0}
- {name: JOBYARD_WORKER__HEALTH_PORT, value: {{ .port | quote }}}
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "jobyard.volumeMounts" -}}
- {name: config, mountPath: /etc/jobyard/config, readOnly: true}
- {name: secrets, mountPath: /etc/jobyard/secrets, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.githubCa.existingConfigMap }}
- {name: github-ca, mountPath: /etc/jobyard/github-ca, readOnly: true}
{{- end }}
{{- range $name, $cluster := .root.Values.runners.clusters }}
{{- if dig "kubeconfigSecret" "" ($cluster | default dict) }}
- {name: kubeconfig-{{ $name }}, mountPath: /etc/jobyard/kubeconfig/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "jobyard.volumes" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
- name: config
  configMap:
    name: {{ include "jobyard.fullname" $root }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "jobyard.secretName" $root }}
          items:
            - {key: admin-token, path: admin-token}
            {{- if $values.runners.enabled }}
            {{- $key := include "jobyard.githubKey" $root }}
            - {key: {{ $key }}, path: {{ $key }}}
            - {key: webhook-secrets, path: webhook-secrets}
            {{- end }}
      {{- if include "jobyard.bundledRedis" $root }}
      - secret:
          name: {{ include "jobyard.redisSecretName" $root }}
          items: [{key: {{ ternary $values.redis.existingSecretKey "password" (ne $values.redis.existingSecret "") }}, path: redis-password}]
      {{- else if $values.store.existingSecret }}
      - secret:
          name: {{ $values.store.existingSecret }}
          items: [{key: {{ $values.store.existingSecretKey }}, path: store-url}]
      {{- else }}
      - secret:
          name: {{ include "jobyard.fullname" $root }}-store
          items: [{key: store-url, path: store-url}]
      {{- end }}
- name: tmp
  emptyDir: {}
{{- if $values.githubCa.existingConfigMap }}
- name: github-ca
  configMap:
    name: {{ $values.githubCa.existingConfigMap }}
{{- end }}
{{- range $name, $cluster := $values.runners.clusters }}
{{- if dig "kubeconfigSecret" "" ($cluster | default dict) }}
- name: kubeconfig-{{ $name }}
  secret:
    secretName: {{ $cluster.kubeconfigSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
