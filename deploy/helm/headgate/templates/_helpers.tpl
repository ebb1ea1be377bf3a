{{- define "headgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "headgate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "headgate.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "headgate.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "headgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "headgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "headgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "headgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "headgate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "headgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The scheme of store.url; empty if a Secret has the URL. */}}
{{- define "headgate.scheme" -}}
{{- if .Values.store.url }}{{ regexFind "^[a-z]+" .Values.store.url }}{{ end }}
{{- end }}

{{/* "true" for a store of one process. */}}
{{- define "headgate.single" -}}
{{- if has (include "headgate.scheme" .) (list "memory" "sqlite") }}true{{ end }}
{{- end }}

{{/* "true" if there is a schema to bring up to date. */}}
{{- define "headgate.migrates" -}}
{{- if and .Values.migration.enabled (not (has (include "headgate.scheme" .) (list "memory" "sqlite" "redis" "rediss"))) }}true{{ end }}
{{- end }}

{{/* What cannot work is refused here, with what to do about it. */}}
{{- define "headgate.validate" -}}
{{- if and .Values.store.url .Values.store.existingSecret }}
{{- fail "store: set url or existingSecret, not both" }}
{{- end }}
{{- if not (or .Values.store.url .Values.store.existingSecret) }}
{{- fail "store: set existingSecret to a Secret that has the URL of the store under the key `store`, or url to a URL such as redis://valkey:6379/0" }}
{{- end }}
{{- $replicas := ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled | int }}
{{- if and (include "headgate.single" .) (gt $replicas 1) }}
{{- fail (printf "store: %d replicas cannot share a store of the kind %q, so each would admit the whole limit: use PostgreSQL, MariaDB, MySQL, Redis or Valkey, or set replicaCount: 1 and autoscaling.enabled: false" $replicas (include "headgate.scheme" .)) }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling: minReplicas is above maxReplicas" }}
{{- end }}
{{- if and .Values.tokens.file .Values.tokens.existingSecret }}
{{- fail "tokens: set file or existingSecret, not both" }}
{{- end }}
{{- if and .Values.tls.clientCA (not .Values.tls.existingSecret) }}
{{- fail "tls: clientCA needs existingSecret, a Secret with tls.crt, tls.key and ca.crt" }}
{{- end }}
{{- if not (or .Values.open .Values.tokens.file .Values.tokens.existingSecret .Values.tls.clientCA) }}
{{- fail "access: headgate does not start where other machines reach it and everybody may do everything: set tokens.existingSecret, or tls.clientCA, or open: true if that is meant" }}
{{- end }}
{{- if and .Values.envoy (not .Values.grpc.enabled) }}
{{- fail "envoy: the rate limit service needs grpc.enabled: true" }}
{{- end }}
{{- if and .Values.persistence.enabled (gt $replicas 1) }}
{{- fail "persistence: the volume is for SQLite, which has one replica: set replicaCount: 1" }}
{{- end }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add .Values.preStopSeconds 18 | int) }}
{{- fail "terminationGracePeriodSeconds: set it to preStopSeconds and 18 at least: requests under way may take 15 s, the store 3 s" }}
{{- end }}
{{- end }}

{{/* The variable with the URL of the store. */}}
{{- define "headgate.storeEnv" -}}
- name: HEADGATE_STORE
  valueFrom:
    secretKeyRef:
      name: {{ .Values.store.existingSecret | default (printf "%s-store" (include "headgate.fullname" .)) }}
      key: {{ ternary .Values.store.key "store" (ne .Values.store.existingSecret "") }}
{{- end }}

{{- define "headgate.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
privileged: false
readOnlyRootFilesystem: true
{{- end }}

{{- define "headgate.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}
