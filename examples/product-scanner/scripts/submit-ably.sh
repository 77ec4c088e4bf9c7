#!/bin/sh
# Scans one page of the listing of ably: submit-ably.sh [PAGE]. JOBYARD_SERVER, JOBYARD_TOKEN, PRIORITY: see submit.sh.
exec "$(dirname "$0")/submit.sh" scan_platform "{\"platform\": \"ably\", \"page\": ${1:-1}}"
