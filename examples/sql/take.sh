# Takes from a limit by psql, at any isolation level, also when the server goes away in between: . ./take.sh
take() { # take RULE KEY [COST [SECONDS]]: prints t or f
  local id out status most=10 end=$((SECONDS + ${4:-10}))
  id=$(cat /proc/sys/kernel/random/uuid)
  while :; do
    out=$(psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=sqlstate -v id="$id" -v rule="$1" -v key="$2" -v cost="${3:-1}" \
      "$HEADGATE_STORE" 2>&1 <<<"select allowed from headgate.take_once(:'id', :'rule', :'key', :'cost')") && status=0 || status=$?
    case "$status $out" in
      0*) echo "$out"; return 0 ;;
      2*|*40001*|*40P01*) [ "$SECONDS" -lt "$end" ] || break ;; # the connection was lost, or a conflict: again
      *) break ;;
    esac
    sleep "0.$(printf %03d $((RANDOM % most)))"
    most=$((most < 640 ? 2 * most : 640))
  done
  echo "$out" >&2
  return 2
}
