#!/bin/sh
# Scans one page of the listing of musinsa: submit-musinsa.sh [PAGE]. JOBYARD_SERVER, JOBYARD_TOKEN, PRIORITY: see submit.sh.
exec "$(dirname "$0")/submit.sh" scan_platform "{\"platform\": \"musinsa\", \"page\": ${1:-1}}"
