#!/bin/sh
# Writes a report of all findings so far. JOBYARD_SERVER, JOBYARD_TOKEN, PRIORITY: see submit.sh.
exec "$(dirname "$0")/submit.sh" price_report
