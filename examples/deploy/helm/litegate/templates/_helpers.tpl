{{- define "litegate.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "litegate.selector" -}}
app.kubernetes.io/name: litegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "litegate.labels" -}}
{{ include "litegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "litegate.secret" -}}
{{- .Values.secrets.existingSecret | default (include "litegate.name" .) -}}
{{- end }}

{{- /* "redis", "postgres" or "": the store that the values name. */ -}}
{{- define "litegate.store" -}}
{{- $redis := or .Values.redis.url .Values.redis.existingSecret -}}
{{- $postgres := or .Values.postgresql.url .Values.postgresql.existingSecret -}}
{{- if and $redis $postgres -}}
{{- fail "Set redis or postgresql, not both: a gateway has one store." -}}
{{- end -}}
{{- if $redis }}redis{{ else if $postgres }}postgres{{ end -}}
{{- end }}
