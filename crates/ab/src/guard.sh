# Reads what `millrace ab` has started, a line each, and waits. A last line `done` says that all is in order. When the
# pipe closes without it, the owner was killed: then this ends what is left, and runs the cleanup, its first argument.
trap '' INT TERM HUP QUIT
groups= marks= cgroups=
while read -r word value; do
  case $word in
    group) groups="$groups $value" ;;
    mark) marks="$marks $value" ;;
    cgroup) cgroups="$cgroups $value" ;;
    done) exit 0 ;;
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
trap - INT TERM HUP QUIT
[ -z "$1" ] || sh -c "$1"
