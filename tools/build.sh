# For scripts that build: source it from the project's folder. `build` leaves its output in build/NAME.log and shows a line each ten
# per cent, and errors when it fails.

# The first cmake that is new enough for CMakeLists.txt.
find_cmake() {
  local cmake
  for cmake in /usr/bin/cmake cmake; do
    if command -v "$cmake" > /dev/null &&
       "$cmake" --version | awk 'NR == 1 {split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25))}'; then
      echo "$cmake"
      return
    fi
  done
  echo "no cmake of 3.25 or newer" >&2
  return 1
}

# with_progress LOG COMMAND...: runs what runs ninja, with its output added to LOG and one line each ten per cent rather than ninja's thousand.
with_progress() {
  local log=$1
  shift
  (
    set -o pipefail
    NINJA_STATUS='%p ' "$@" 2>&1 | tee -a "$log" |
      awk '{p = int($1 / 10) * 10; if ($1 ~ /^[0-9]+%$/ && p > last) {last = p; printf "  %d%%\n", p; fflush()}}'
  )
}

# build PRESET [TARGET...]
build() {
  local preset=$1 cmake log=build/$1.log
  shift
  cmake=$(find_cmake) || return 1
  mkdir -p build
  echo "building $preset${*:+: $*}"
  if ! { "$cmake" --preset "$preset" > "$log" 2>&1 && with_progress "$log" "$cmake" --build --preset "$preset" -j"$(nproc)" ${*:+--target "$@"}; }; then
    grep -E -m 20 -A 12 'error:|FAILED:|CMake Error' "$log" >&2 || tail -40 "$log" >&2
    echo "building $preset failed, see $log" >&2
    return 1
  fi
}

build_release() { build release; }
