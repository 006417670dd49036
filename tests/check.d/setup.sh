#!/bin/sh
# ./setup on machines that cannot build, and ./setup again on one that did. Nothing here installs or builds.
set -u
cd "$LOCKSTEP_ROOT" || exit 1

# refused NAME WORDS COMMAND...: it fails, and says WORDS.
refused() {
  name=$1 words=$2
  shift 2
  if output=$("$@" 2>&1); then
    echo "FAIL $name it did not fail"
  elif printf '%s' "$output" | grep -q "$words"; then
    echo "PASS $name"
  else
    printf '%s\n' "$output"
    echo "FAIL $name its words do not name the cause"
  fi
}

# A root user's shell with just these programs: no apt-get.
mkdir "$LOCKSTEP_TMP/few"
for program in sh dirname uname grep sed id mkdir; do ln -s "$(command -v $program)" "$LOCKSTEP_TMP/few/$program"; done
refused no-apt 'apt-get is missing' env PATH="$LOCKSTEP_TMP/few" ./setup

echo 'flags : fpu sse avx f16c' >"$LOCKSTEP_TMP/cpuinfo"
refused old-processor 'has no avx2; lockstep needs x86-64 with AVX2' env LOCKSTEP_CPUINFO="$LOCKSTEP_TMP/cpuinfo" ./setup
refused unknown-option "unknown option '--test'" ./setup --test

# Packages missing, and no way to become root: the one line to run.
mkdir "$LOCKSTEP_TMP/bare" "$LOCKSTEP_TMP/tree" "$LOCKSTEP_TMP/tree/tools"
cp setup "$LOCKSTEP_TMP/tree/"
echo 'no-such-package-of-debian' >"$LOCKSTEP_TMP/tree/tools/packages.txt"
for program in sh dirname uname grep sed mkdir date tr cat apt-get dpkg-query; do
  ln -s "$(command -v $program)" "$LOCKSTEP_TMP/bare/$program"
done
printf '#!/bin/sh\necho 1000\n' >"$LOCKSTEP_TMP/bare/id"
chmod +x "$LOCKSTEP_TMP/bare/id"
refused no-root 'apt-get update && apt-get install -y --no-install-recommends no-such-package-of-debian' \
  env PATH="$LOCKSTEP_TMP/bare" "$LOCKSTEP_TMP/tree/setup"
