#!/bin/sh
# `lockstep demo --quick` meets its published hash and claims no learning, on the widest instruction set with all processors, on AVX2 with one thread, on ranks, and
# with rollouts that are guessed ahead, by a layer that learns on line, which is right now and then, and by texts. What it serves at the end is the prompt that it named
# before any arm, and it says whether the answer is right.
set -u
cd -- "$LOCKSTEP_ROOT"

judged() { # LOG
  awk '/^asked at the end, over HTTP: 16 19 14=17: [(]held-out problem [0-9]+[)]$/ && !trained { asked = 1 }
       /^lockstep: / { trained = 1 }
       /^  200 16 19 14=17:.* [(](right|wrong)[)]$/ && asked && trained { judged = 1 }
       END { exit !judged }' "$1"
}
unnamed() { # LOG: one that names its prompt behind the arm
  awk '/^asked at the end/ { line = $0; next } { print } /^lockstep: / { print line }' "$1"
}

guessed() { # OPTIONS: whether forwards were guessed ahead is what they say, and guesses of the layer gave tokens
  lengths=$(grep -ho '"accepted_length": *[0-9.]*' "$LOCKSTEP_TMP/runs/demo/metrics-lockstep.jsonl" | cut -d : -f 2)
  case $1 in
    *mtp*) echo "$lengths" | awk '$1 > 1 { more = 1 } END { exit !more }' ;;
    *speculation*) [ -n "$lengths" ] ;;
    *) [ -z "$lengths" ] ;;
  esac
}

for device in "" "--isa avx2 --threads 1" "--ranks tp=2,dp=2" "--rollout-speculation mtp --mtp-depths 2" "--rollout-speculation siblings,ngram"; do
  name="demo/quick$(printf %s "$device" | tr -cd 'a-z0-9 ' | sed 's/^./-&/;s/ /-/g')"
  # shellcheck disable=SC2086
  if "$LOCKSTEP_BINARY" demo --quick --runs "$LOCKSTEP_TMP/runs" $device >"$LOCKSTEP_TMP/demo.log" 2>&1 &&
    grep -q "too short to learn" "$LOCKSTEP_TMP/demo.log" && ! grep -q "gained" "$LOCKSTEP_TMP/demo.log" &&
    judged "$LOCKSTEP_TMP/demo.log" && unnamed "$LOCKSTEP_TMP/demo.log" >"$LOCKSTEP_TMP/unnamed.log" && ! judged "$LOCKSTEP_TMP/unnamed.log" &&
    guessed "$device" && [ "$(tail -n 1 "$LOCKSTEP_TMP/demo.log")" = "identical to the published run" ]; then
    echo "PASS $name"
  else
    tail -n 20 "$LOCKSTEP_TMP/demo.log"
    echo "FAIL $name"
  fi
done
