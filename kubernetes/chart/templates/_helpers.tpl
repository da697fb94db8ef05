{{- /* SPDX-License-Identifier: MIT */ -}}
{{- define "rtxg.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "rtxg.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "rtxg.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "rtxg.labels" -}}
{{ include "rtxg.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
{{- define "rtxg.secret" -}}
{{ if eq .Values.webhook.tls.from "secret" }}{{ .Values.webhook.tls.secretName | default (printf "%s-webhook-cert" (include "rtxg.name" .)) }}{{ else }}{{ include "rtxg.name" . }}-webhook-cert{{ end }}
{{- end }}
