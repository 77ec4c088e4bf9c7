{{- define "jobyard.redisFiles" -}}
redis.conf: |
  bind * -::*
  port 6379
  dir /data
  appendonly yes
  appendfsync everysec
  maxmemory {{ .Values.redis.maxmemory }}
  maxmemory-policy noeviction
  # Written at the start: the account, with a hash of the password.
  include /run/redis/account.conf
start.sh: |
  set -eu
  hash=$(printf '%s' "$(cat /run/secrets/redis/password)" | sha256sum | cut -d ' ' -f 1)
  printf 'user default on #%s ~* &* +@all\n' "$hash" > /run/redis/account.conf
  exec redis-server /etc/redis/redis.conf
ready.sh: |
  set -eu
  REDISCLI_AUTH=$(cat /run/secrets/redis/password)
  export REDISCLI_AUTH
  test "$(redis-cli -p 6379 ping)" = PONG
{{- end -}}
