#!/bin/bash
# Runs every fuzz target for some seconds, from the seed files that tests/fuzz/corpora names for it.
#
#   tests/fuzz/run.sh FOLDER_OF_THE_TARGETS SECONDS
#
# The readers of .pt2, .pte and the text form get all the seconds, the others a third of them.
set -uo pipefail
cd "$(dirname "$0")/../.."
shopt -s nullglob
targets=("$1"/*_fuzz)
[ ${#targets[@]} -gt 0 ] || { echo "FAILED: there are no fuzz targets in $1" >&2; exit 1; }

run() {
  local target=$1 seconds=$2 name files=() globs glob
  name=$(basename "$target")
  # The globs of the line that begins with the target's name.
  read -r -a globs <<< "$(sed -n "s/^$name  *//p" tests/fuzz/corpora)"
  for glob in "${globs[@]+"${globs[@]}"}"; do
    files+=($glob)
  done
  case $name in
    import_fuzz | pte_fuzz | text_fuzz) ;;
    *) seconds=$(((seconds + 2) / 3)) ;;
  esac
  "$target" --seconds "$seconds" "${files[@]+"${files[@]}"}" || { echo "FAILED: $target --seconds $seconds ${files[*]-}" >&2; return 1; }
}

# As many at once as there are processors.
status=0 jobs=()
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do sleep 0.2; done
  run "$target" "$2" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do
  wait "$job" || status=1
done
exit $status
