# Shared by all scripts in bench/: it finds programs, and runs a server in the foreground with a directory of its own.
# Sourced by bash, never run.
# shellcheck shell=bash
set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034  # for those who source this
repository=$(dirname "$bench")

# Exit status of whatever cannot run because something is not there.
readonly ABSENT=3

# absent PROJECT VERSION WHERE: says what is missing, and which version we measured.
absent() {
  echo "$1 is not here. We measured $1 $2; $3" >&2
  exit "$ABSENT"
}

# program VARIABLE COMMAND...: prints the path of the first that is there; what the environment variable names goes
# first, and must exist.
program() {
  local variable=$1 command
  shift
  if [[ -n ${!variable:-} ]]; then
    command -v "${!variable}" || { echo "$variable=${!variable}: no such program" >&2; return 1; }
    return
  fi
  for command in "$@"; do
    PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v "$command" && return
  done
  return 1
}

# debian COMMAND PACKAGE: installs the package when the command is missing and we are root. A service that comes with it
# is stopped again: we start our own.
debian() {
  local command=$1 package=$2
  PATH="$PATH:/usr/sbin" command -v "$command" >/dev/null && return
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then return 1; fi
  echo "installing the Debian package $package" >&2
  {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
    if [[ -d /run/systemd/system ]]; then systemctl disable --now "$package" || true; fi
  } </dev/null >&2
}

# package_version PACKAGE: the version of a Debian package.
package_version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || echo "of unknown version"; }

# work_directory: makes a directory that is gone when the script ends, in $work.
work_directory() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/millrace-bench.XXXXXX")
  trap 'rm -rf "$work"' EXIT
}

# foreground COMMAND...: runs it until it ends or SIGTERM or SIGINT comes, which is passed on as SIGTERM.
foreground() {
  ulimit -c 0
  "$@" &
  server=$!
  until_it_ends
}

# until_it_ends: waits for $server, and passes SIGTERM and SIGINT on to it as SIGTERM.
until_it_ends() {
  stopping=
  trap 'stopping=1; kill -TERM "$server" "${helpers[@]}" 2>/dev/null || true' TERM INT
  local status=0
  wait "$server" || status=$?
  # A signal ends `wait` before it ends the server.
  if [[ -n $stopping ]]; then
    wait "$server" 2>/dev/null || true
    status=0
  fi
  ((${#helpers[@]} == 0)) || kill -TERM "${helpers[@]}" 2>/dev/null || true
  return "$status"
}

# Processes that a server needs beside it, by their numbers; they end with it.
helpers=()

# wait_for_port HOST PORT: until something listens there, 10 s at most.
wait_for_port() {
  local try
  for ((try = 0; try < 100; try++)); do
    (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null && return
    sleep 0.1
  done
  echo "nothing listens at $1:$2" >&2
  return 1
}

# certificate DIRECTORY: makes key.pem and cert.pem there, for "localhost" and a day.
certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -days 1 \
    -keyout "$1/key.pem" -out "$1/cert.pem" 2>/dev/null
}

# behind_veth COMMAND...: runs it in the foreground in a network namespace of its own, at 10.251.0.1; we are at 10.251.0.2, at
# the other end of a pair of virtual cards. What it sends as one message is split before it goes over them, as where a card
# cannot split itself; what we send comes to it whole, as cards join it. With delivery_cpu=N what it sends is not split, as by
# cards that do so themselves, and comes to us on that CPU, not on the one that it was sent from.
behind_veth() {
  only_in_namespace
  local segments=1
  [[ -z ${delivery_cpu:-} ]] || segments=64
  # shellcheck disable=SC2016  # expanded by the inner shell
  unshare --net bash -c '
    until ip link set far0 gso_max_segs "$0" up 2>/dev/null; do sleep 0.02; done
    ip link set lo up && ip addr add 10.251.0.1/24 dev far0 && exec "$@"' "$segments" "$@" &
  server=$!
  until [[ $(readlink "/proc/$server/ns/net") != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.02; done
  ip link add near0 type veth peer name far0 netns "$server"
  ip link set near0 up
  ip addr add 10.251.0.2/24 dev near0
  [[ -z ${delivery_cpu:-} ]] || deliver_on "$delivery_cpu"
  until_it_ends
}

# deliver_on CPU: see behind_veth.
deliver_on() {
  local mask
  mask=$(printf %x $((1 << $1)))
  # shellcheck disable=SC2016  # expanded by the inner shell
  unshare --mount bash -c 'mount -t sysfs sysfs /sys && echo "$0" >/sys/class/net/near0/queues/rx-0/rps_cpus' "$mask"
}

# only_in_namespace: refuses to go on where others could reach what listens on all addresses.
only_in_namespace() {
  [[ -n ${MILLRACE_BENCH_NAMESPACE:-} ]] && return
  echo "this needs a network namespace of its own, which bench/run makes" >&2
  exit 1
}

# in_namespace COMMAND...: runs it in a new network namespace, from which nothing gets out. It has loopback, and a second
# address, 10.250.0.1, because many WebRTC libraries leave loopback out. What goes to 198.18.0.0/15 (RFC 2544's, for
# measurements) goes through the whole stack and over a virtual card, whose other end drops it: no card has the address
# that it is for. All of it ends with the command, however that ends. MILLRACE_BENCH_MTU is loopback's, if it is to be another.
in_namespace() {
  local enter=(unshare --net)
  ((EUID == 0)) || enter+=(--map-root-user)
  # shellcheck disable=SC2016  # expanded by the inner shell
  "${enter[@]}" bash -c '
    ip link set lo mtu "${MILLRACE_BENCH_MTU:-65536}" up &&
      ip link add bench0 mtu 1500 type veth peer name bench1 &&
      ip link set bench1 up &&
      ip addr add 10.250.0.1/32 dev bench0 &&
      ip link set bench0 up &&
      ip neigh add 10.250.0.2 lladdr 02:00:00:00:00:99 dev bench0 nud permanent &&
      ip route add 198.18.0.0/15 via 10.250.0.2 dev bench0 onlink || exit
    MILLRACE_BENCH_NAMESPACE=1 exec "$@"' in_namespace "$@"
}

# janus_cache: where the npm packages of Janus' front end are.
janus_cache() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/millrace-bench/janus"; }

# millrace_binary: prints the path of our own program, which MILLRACE_BIN names; otherwise it is built, in release mode.
millrace_binary() {
  if [[ -z ${MILLRACE_BIN:-} ]]; then
    (cd "$repository" && cargo build --locked --release --quiet -p millrace) >&2
    MILLRACE_BIN=$repository/target/release/millrace
  fi
  [[ -x $MILLRACE_BIN ]] || { echo "MILLRACE_BIN=$MILLRACE_BIN: no such program" >&2; return 1; }
  realpath "$MILLRACE_BIN"
}
