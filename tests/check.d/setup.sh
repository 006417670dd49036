#!/bin/sh
# ./setup on machines that cannot build, and in build folders that something happened to. Nothing here installs; what it builds is one line of C++.
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

# --- a build folder that something happened to ------------------------------------------------------------------------
# A small tree of the same kind: what is looked at is the folder, not the program.
tree=$LOCKSTEP_TMP/small
mkdir -p "$tree/tools"
cp setup "$tree/"
echo 'cmake ninja-build' >"$tree/tools/packages.txt"
cat >"$tree/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(small VERSION 1.0 LANGUAGES CXX)
set(LOCKSTEP_TESTS ON CACHE BOOL "")
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/*.cpp)
add_executable(lockstep ${sources})
END
echo 'int main() {}' >"$tree/main.cpp"

# mended NAME WORD: ./setup makes the program again, and its output holds WORD.
mended() {
  rm -f "$tree/build/lockstep"
  if ! output=$(cd "$tree" && ./setup 2>&1); then
    printf '%s\n' "$output"
    echo "FAIL $1 ./setup failed"
  elif [ ! -x "$tree/build/lockstep" ]; then
    echo "FAIL $1 no program was made"
  elif ! printf '%s' "$output" | grep -q "$2"; then
    printf '%s\n' "$output"
    echo "FAIL $1 it does not say '$2'"
  else
    echo "PASS $1"
  fi
}
mended fresh-folder '^configure  Release'
mended same-folder '^configure  done before'
cache=$tree/build/CMakeCache.txt
for line in CMAKE_MAKE_PROGRAM CMAKE_HOME_DIRECTORY CMAKE_BUILD_TYPE; do
  sed -i "/^$line:/d" "$cache"
  sleep 0.05 # a file's time is that of the last tick
  touch "$tree/CMakeLists.txt" # the next build configures by itself
  mended "lost-line-$line" '^build '
done
rm "$tree/build/build.ninja"
mended lost-build-file '^configure  Release'
: >"$cache"
mended empty-cache '^configure  Release'
sed -i 's|^CMAKE_MAKE_PROGRAM:.*|CMAKE_MAKE_PROGRAM:FILEPATH=/nonexistent/ninja|' "$cache"
mended ninja-that-went-away '^configure  Release'
sed -i 's/^ninja_required_version.*/ninja_required_version = 99.0/' "$tree/build/build.ninja"
mended build-file-of-another-ninja '^mend '
sed -i 's|^CMAKE_COMMAND:.*|CMAKE_COMMAND:INTERNAL=/nonexistent/cmake|;s|^CMAKE_ROOT:.*|CMAKE_ROOT:INTERNAL=/nonexistent/share|' "$cache"
sed -i 's|/usr/bin/cmake --regen|/nonexistent/cmake --regen|' "$tree/build/CMakeFiles/rules.ninja" "$tree/build/build.ninja"
sleep 0.05
touch "$tree/CMakeLists.txt"
mended cmake-that-went-away '^mend '
# The environment of the tests in Python is made beside the build; both are there at the end, and its fault is told.
echo 'add_custom_target(unit_tests)' >>"$tree/CMakeLists.txt"
: >"$tree/tools/browser-packages.txt"
environment=$tree/tools/oracle_environment.sh
printf '#!/bin/sh\nmkdir -p %s/.oracle && echo made\n' "$tree" >"$environment"
chmod +x "$environment"
rm -f "$tree/build/lockstep"
if output=$(cd "$tree" && ./setup --oracle 2>&1) && [ -d "$tree/.oracle" ] && [ -x "$tree/build/lockstep" ]; then
  echo "PASS oracle-beside-the-build"
else
  printf '%s\n' "$output"
  echo "FAIL oracle-beside-the-build"
fi
# Packages that nothing that is built needs are installed beside the build, too; here by programs that only say so.
fake=$LOCKSTEP_TMP/fake browser=$LOCKSTEP_TMP/browser-is-installed
mkdir "$fake"
echo no-such-browser >"$tree/tools/browser-packages.txt"
printf '#!/bin/sh\necho 0\n' >"$fake/id"
cat >"$fake/dpkg-query" <<END
#!/bin/sh
for package; do
  case \$package in -*) ;; no-such-browser) [ ! -e "$browser" ] || echo "installed=\$package" ;; *) echo "installed=\$package" ;; esac
done
END
cat >"$fake/apt-get" <<'END'
#!/bin/sh
case " $* " in *" -s "* | *" update "*) ;; *) echo "no mirror here" && exit 1 ;; esac
END
chmod +x "$fake"/*
refused browser-that-cannot-be-installed 'no mirror here' env PATH="$fake:$PATH" sh -c "cd '$tree' && ./setup --oracle"
printf '#!/bin/sh\ncase " $* " in *" -s "*) ;; *) sleep 1 && touch "%s" ;; esac\n' "$browser" >"$fake/apt-get"
rm -rf "$tree/.oracle"
if output=$(cd "$tree" && PATH="$fake:$PATH" ./setup --oracle 2>&1) && [ -e "$browser" ] && [ -d "$tree/.oracle" ] &&
  printf '%s' "$output" | grep -q '^packages   those that the build needs are present'; then
  echo "PASS browser-beside-the-build"
else
  printf '%s\n' "$output"
  echo "FAIL browser-beside-the-build"
fi
printf '#!/bin/sh\ntouch "%s"\n' "$browser-other" >"$fake/apt-get"
rm "$browser"
refused browser-that-is-not-there 'still missing: no-such-browser' env PATH="$fake:$PATH" sh -c "cd '$tree' && ./setup --oracle"
: >"$tree/tools/browser-packages.txt"
printf '#!/bin/sh\necho no network here\nexit 1\n' >"$environment"
refused oracle-that-fails 'no network here' sh -c "cd '$tree' && ./setup --oracle"
# What does not compile is no fault of the folder: it is not configured again.
echo 'int main() { wrong }' >"$tree/main.cpp"
if output=$(cd "$tree" && ./setup 2>&1) || printf '%s' "$output" | grep -Eq '^(mend|configure  Release)'; then
  printf '%s\n' "$output"
  echo "FAIL wrong-source it was built, or the folder was configured again"
else
  echo "PASS wrong-source"
fi
