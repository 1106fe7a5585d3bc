# Reads what `millrace ab` has started, a line each, and waits. A last line `done` says that it is all gone. When the pipe
# closes without it, the owner was killed: then this ends what is left. In the end it runs the cleanup, its first argument,
# for half a minute at most, and adds to the log, its second one.
trap '' INT TERM HUP QUIT
groups= marks= cgroups= is_gone=
while read -r word value; do
  case $word in
    group) groups="$groups $value" ;;
    mark) marks="$marks $value" ;;
    cgroup) cgroups="$cgroups $value" ;;
    done) is_gone=1 && break ;;
  esac
done

# Children that left the group still have the mark in their environment.
send() {
  for group in $groups; do kill -s "$1" -- "-$group"; done
  for mark in $marks; do
    for process in $(grep -lzxF -- "$mark" /proc/[0-9]*/environ); do
      process=${process#/proc/}
      kill -s "$1" "${process%/environ}"
    done
  done
}

if [ -z "$is_gone" ]; then
  send TERM
  sleep 1
  send KILL
  for cgroup in $cgroups; do echo 1 > "$cgroup/cgroup.kill"; done
  # The kernel lets go of a cgroup a moment after its last process.
  for cgroup in $cgroups; do
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
      rmdir "$cgroup"
      [ -d "$cgroup" ] || break
      sleep 0.2
    done
  done
fi
trap - INT TERM HUP QUIT
[ -z "$1" ] || timeout -k 1 30 sh -c "$1" </dev/null >>"$2" 2>&1
