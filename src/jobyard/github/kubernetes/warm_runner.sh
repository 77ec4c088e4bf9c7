# Wait for the configuration of a runner, then start the program "$@" with it.
# POST to $JOBYARD_WARM_URL with the bearer token: 200 and the configuration as text, or 204 while there is no job.
# 401, 403, 404 and 410 mean that this runner is not wanted any more.
set -u
trap 'exit 143' TERM INT

ask() {
  # The token is passed by standard input: arguments are visible to other processes.
  printf 'header = "Authorization: Bearer %s"\n' "$JOBYARD_WARM_TOKEN" |
    curl --config - --silent --show-error --connect-timeout 10 --max-time 60 --data '' \
      --write-out '\n%{http_code}' "$JOBYARD_WARM_URL"
}

if ! command -v curl >/dev/null; then
  echo "A warm runner needs curl in its image." >&2
  exit 127
fi
while :; do
  answer=$(ask) || answer=
  status=${answer##*
}
  case $status in
    200) break ;;
    401 | 403 | 404 | 410) echo "This warm runner is not wanted any more: status $status." >&2; exit 1 ;;
  esac
  sleep 1 &
  wait $!
done
ACTIONS_RUNNER_INPUT_JITCONFIG=${answer%
*}
export ACTIONS_RUNNER_INPUT_JITCONFIG
unset JOBYARD_WARM_TOKEN JOBYARD_WARM_URL answer
trap - TERM INT
exec "$@"
