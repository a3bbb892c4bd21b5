#!/bin/bash
# Runs every fuzz target for some seconds, from the seed files that tests/fuzz/corpora names for it.
#
#   tests/fuzz/run.sh FOLDER_OF_THE_TARGETS SECONDS
#
# The readers of .pt2, .pte and the text form get all the seconds, the others a third of them.
set -uo pipefail
cd "$(dirname "$0")/../.."
shopt -s nullglob
status=0
targets=("$1"/*_fuzz)
[ ${#targets[@]} -gt 0 ] || { echo "FAILED: there are no fuzz targets in $1" >&2; exit 1; }
for target in "${targets[@]}"; do
  name=$(basename "$target")
  # The globs of the line that begins with the target's name.
  read -r -a globs <<< "$(sed -n "s/^$name  *//p" tests/fuzz/corpora)"
  files=()
  for glob in "${globs[@]+"${globs[@]}"}"; do
    files+=($glob)
  done
  case $name in
    import_fuzz | pte_fuzz | text_fuzz) seconds=$2 ;;
    *) seconds=$((($2 + 2) / 3)) ;;
  esac
  "$target" --seconds "$seconds" "${files[@]+"${files[@]}"}" || { echo "FAILED: $target --seconds $seconds ${files[*]-}" >&2; status=1; }
done
exit $status
