#!/bin/sh
# Scans one product: submit-extract.sh URL. Collects the addresses of all sites: submit-extract.sh.
# JOBYARD_SERVER, JOBYARD_TOKEN, PRIORITY: see submit.sh.
case ${1:-} in
    "") exec "$(dirname "$0")/submit.sh" url_extraction ;;
    *[\"\\]*) echo "Error: not an address: $1" >&2; exit 1 ;;
    *) exec "$(dirname "$0")/submit.sh" single_product "{\"url\": \"$1\"}" ;;
esac
