# For scripts that build: source it from the project's folder. The functions leave their output in build/NAME.log and show it
# only when they fail.

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

# build PRESET [TARGET...]
build() {
  local preset=$1 cmake log=build/$1.log
  shift
  cmake=$(find_cmake) || return 1
  mkdir -p build
  echo "building $preset${*:+: $*}"
  if ! { "$cmake" --preset "$preset" && "$cmake" --build --preset "$preset" -j"$(nproc)" ${*:+--target "$@"}; } > "$log" 2>&1; then
    grep -E -m 20 -A 12 'error|FAILED|Error' "$log" >&2 || tail -40 "$log" >&2
    echo "building $preset failed, see $log" >&2
    return 1
  fi
}

build_release() { build release; }
