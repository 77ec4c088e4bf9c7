#!/bin/sh
# Shows what runs on each platform of a jobyard server, and what waits there. Needs curl and jq.
#   JOBYARD_SERVER  the address of the server; else API_URL; else http://localhost:3989
#   JOBYARD_TOKEN   an API token that may watch; or JOBYARD_TOKEN_FILE, a file with it
# Exit code 1: the server did not answer, or refused.
set -eu

for program in curl jq; do
    command -v "$program" >/dev/null || { echo "Error: $program is not installed." >&2; exit 1; }
done
url=${JOBYARD_SERVER:-${API_URL:-http://localhost:3989}}
url=${url%/}/api/v2/jobs/running
token=${JOBYARD_TOKEN:-}
if [ -z "$token" ] && [ -n "${JOBYARD_TOKEN_FILE:-}" ]; then
    token=$(cat "$JOBYARD_TOKEN_FILE")
fi

# The header goes through a pipe: the arguments of a process are visible to all users.
body=$(printf '%s' "${token:+Authorization: Bearer $token}" |
    curl --silent --show-error --max-time 15 --header @- "$url") || exit 1

printf '%s' "${body:-null}" | jq --raw-output '
# Text from jobs may hold characters that control a terminal.
def visible: tostring | explode | map(if . < 32 or (. >= 127 and . < 160) then 63 else . end) | implode;
def pad($width): . + ([range($width - length) | " "] | add // "");
def table: . as $rows
    | [range($rows[0] | length) as $n | [$rows[] | .[$n] | length] | max] as $widths
    | $rows[] | [to_entries[] | .key as $n | .value | if $n + 1 < ($widths | length) then pad($widths[$n]) else . end]
    | join("  ");
def duration: floor
    | if . < 60 then "\(.)s"
      elif . < 3600 then "\(. / 60 | floor)m\(. % 60)s"
      else "\(. / 3600 | floor)h\(. % 3600 / 60 | floor)m" end;

if .success == false then "Error: \(.error.message | visible)\n" | halt_error(1) else .data
| (if .running == [] then "No running jobs." else
    [["PLATFORM", "JOB", "WORKFLOW", "STARTED", "FOR"]]
    + [.running[] | [.platform, .job_id, .workflow_id, .started_at, (.elapsed_seconds | duration)] | map(visible)]
    | table end),
  "",
  ([["PLATFORM", "QUEUED"]] + [.queued | to_entries[] | [.key, .value] | map(visible)] | table),
  "",
  "\(.summary.running_count) running, \(.summary.queued_count) queued"
end' || {
    [ $? -eq 1 ] || echo "Error: unexpected response from $url. Check JOBYARD_SERVER or API_URL." >&2
    exit 1
}
