#!/bin/sh
# Tries this checkout on a bare machine: a `debootstrap --variant=minbase` root of Debian 12, in which nothing is
# installed, gets a copy of the tree and runs there, as a newcomer would,
#   ./setup as a user who is not root (must refuse, with the one line to run), ./demo --quick, ./setup again, ./check
# Needs root and debootstrap. Takes the mirror, apt's settings, certificates and pip's settings from this machine.
# Everything is unmounted and removed at the end; the log stays.
#   tools/bare_machine.sh [--log FILE] [--keep] [--only 'COMMAND']
# --keep leaves the root in its place; --only runs one command there instead of the four. TMPDIR says where.
set -eu
LC_ALL=C
export LC_ALL
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
suite=bookworm
log=$here/runs/bare_machine.log keep=no only=

stop() {
  printf 'bare_machine: %s\n' "$1" >&2
  exit 1
}
while [ $# -gt 0 ]; do
  case $1 in
    --log) log=${2:?--log wants a file} && shift ;;
    --only) only=${2:?--only wants a command} && shift ;;
    --keep) keep=yes ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) stop "unknown option '$1'; known are --log, --keep, --only" ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || stop "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || stop "debootstrap is missing: apt-get install debootstrap"

# Where this machine's apt finds Debian's main archive.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT) $(CODENAME)' 'Created-By: Packages' |
  awk -v suite=$suite '$2 == "Debian" && $3 == "main" && $4 == suite { print $1; exit }')
[ -n "$mirror" ] || stop "apt knows no archive of Debian $suite; is it in apt's sources, and was apt-get update run?"

work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-bare.XXXXXX")
root=$work/root
finish() {
  status=$?
  trap - EXIT INT TERM HUP
  # Lazily: a process that still stands in it does not keep the mount in this machine's tree.
  for inside in proc dev/pts dev/shm; do
    if grep -q " $root/$inside " /proc/mounts; then umount "$root/$inside" || umount -l "$root/$inside"; fi
  done
  if grep -q " $root/" /proc/mounts; then
    echo "bare_machine: something is still mounted below $root; it is left there" >&2
  elif [ $keep = yes ]; then
    echo "bare_machine: the root is kept in $root"
  else
    rm -rf --one-file-system "$work"
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir -p "$(dirname "$log")"
: >"$log"
note() { printf '%s\n' "$1" | tee -a "$log"; }
seconds() { date +%s; }

# step NAME WANTED COMMAND...: runs it into the log and prints its time; its status must be WANTED.
step() {
  name=$1 wanted=$2 begin=$(seconds) got=0
  shift 2
  note "=== $name"
  "$@" >>"$log" 2>&1 </dev/null || got=$?
  took=$(($(seconds) - begin))
  if [ "$got" != "$wanted" ]; then
    tail -n 30 "$log" >&2
    note "FAIL $name: status $got after $took s (the log: $log)"
    exit 1
  fi
  note "PASS $name ($took s)"
}

step "debootstrap minbase $suite" 0 debootstrap --variant=minbase $suite "$root" "$mirror"

# --- what of this machine a bare one in its place would have too -----------------------------------------------------
for file in /etc/hosts /etc/resolv.conf /etc/pip.conf; do
  [ ! -f $file ] || cp -L $file "$root$file"
done
# apt: how to reach the archive (proxies, certificates, clocks), not which archives or post-processing.
apt-config dump | grep -E '^Acquire::(http|https|Retries|Check-Date|Check-Valid-Until|Max-FutureTime)(::|\b)' \
  >"$root/etc/apt/apt.conf.d/90carried" || true
if [ -d /etc/apt/auth.conf.d ]; then cp -a /etc/apt/auth.conf.d "$root/etc/apt/"; fi
# Certificates of the place itself; the package ca-certificates takes them in when it is installed.
if [ -d /usr/local/share/ca-certificates ]; then
  mkdir -p "$root/usr/local/share/ca-certificates"
  cp -RL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
fi
for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY \
  PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT; do
  value=$(printenv $variable || true)
  [ -z "$value" ] || printf "export %s='%s'\n" "$variable" "$(printf '%s' "$value" | sed "s/'/'\\\\''/g")"
done >"$root/etc/carried-environment"

# --- the tree: what git tracks or would track, without git's own folder ----------------------------------------------
mkdir -p "$root/home/newcomer/lockstep"
if command -v git >/dev/null && git -C "$here" -c safe.directory="$here" rev-parse --git-dir >/dev/null 2>&1; then
  git -C "$here" -c safe.directory="$here" ls-files -z --cached --others --exclude-standard
else
  cd "$here" && find . \( -name build -o -name 'build-*' -o -name runs -o -name .oracle \) -prune -o -type f -print0
fi >"$work/files"
tar -C "$here" --null --files-from="$work/files" --ignore-failed-read -cf - |
  tar -C "$root/home/newcomer/lockstep" -xf -
chown -R 0:0 "$root/home/newcomer/lockstep"

mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"

inside() { # COMMAND as root, in the copy, with a newcomer's environment
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
    /usr/sbin/chroot "$root" /bin/sh -c ". /etc/carried-environment && cd /home/newcomer/lockstep && $1"
}
as_stranger() { # the same, as a user who owns a copy of the tree and nothing else
  if [ ! -d "$root/home/stranger" ]; then
    inside "cp -R /home/newcomer/lockstep /home/stranger && chown -R 65534:65534 /home/stranger" || return 99
  fi
  env -i PATH=/usr/bin:/bin HOME=/home/stranger TERM=dumb \
    /usr/sbin/chroot --userspec=65534:65534 "$root" /bin/sh -c "cd /home/stranger && $1"
}

if [ -n "$only" ]; then
  step "$only" 0 inside "$only"
else
  step "./setup without root names the line to run" 1 as_stranger ./setup
  grep -q '^  apt-get update && apt-get install ' "$log" || stop "./setup without root did not print the line to run"
  step "./demo --quick" 0 inside "./demo --quick"
  step "./setup again" 0 inside ./setup
  # A checkout of somebody else: its program runs, and ./setup says why it cannot build there.
  step "the program, run by another user" 0 as_stranger "/home/newcomer/lockstep/build/lockstep --version"
  step "./setup in another user's checkout refuses" 1 as_stranger "/home/newcomer/lockstep/setup"
  grep -q 'cannot write to .*; run as the owner of this checkout' "$log" ||
    stop "it did not say that it cannot write there"
  step "./check" 0 inside ./check
  note "$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)"
fi
note "bare_machine: all of it works (the log: $log)"
