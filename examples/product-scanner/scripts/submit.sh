#!/bin/sh
# Submits a workflow: submit.sh WORKFLOW [PARAMS]. Prints the response, which has the id of the job.
#   JOBYARD_SERVER  the address of the server; else API_URL; else http://localhost:3989
#   JOBYARD_TOKEN   an API token that may submit; or JOBYARD_TOKEN_FILE, a file with it
#   PRIORITY        a higher one starts first; 0 if it is not set
# Needs curl only. Exit code 1: the server did not answer, or refused.
set -eu

workflow=${1:?the id of a workflow}
params=${2:-"{}"}
url=${JOBYARD_SERVER:-${API_URL:-http://localhost:3989}}
token=${JOBYARD_TOKEN:-}
if [ -z "$token" ] && [ -n "${JOBYARD_TOKEN_FILE:-}" ]; then
    token=$(cat "$JOBYARD_TOKEN_FILE")
fi

# The header goes through a pipe: the arguments of a process are visible to all users.
printf '%s' "${token:+Authorization: Bearer $token}" |
    curl --silent --show-error --fail-with-body --max-time 30 --header @- --header 'Content-Type: application/json' \
        --data "{\"workflow_id\": \"$workflow\", \"params\": $params, \"priority\": ${PRIORITY:-0}}" \
        "${url%/}/api/v2/workflows/execute" || { echo; exit 1; }
echo
