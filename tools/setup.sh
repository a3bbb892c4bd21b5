#!/bin/bash
# Installs what building and testing need, on Debian 12 or 13: packages by apt, XNNPACK from Debian's sources, a Python venv.
#
#   tools/setup.sh [--test] [--no-python]
#
# --test also installs what only ./test uses: the cross compiler and qemu-user (optional), ExecuTorch and pytest, and
# Qualcomm's library for its NPU as onnxruntime-qnn packs it (optional).
# Nothing is done twice: what is there already is left alone, and a second run takes a second or two.
# build/venv is the venv. Package mirrors and the Python index are those that the machine is configured with.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TORCH=2.13.0 TRANSFORMERS=5.24.0 EXECUTORCH=1.5.1 ONNXRUNTIME_QNN=2.7.0

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

retry() {  # COMMAND...: up to three times, for network hiccups
  local attempt
  for attempt in 1 2 3; do
    "$@" && return
    [ "$attempt" = 3 ] || { say "'$1' failed, trying again in $((attempt * 5)) s"; sleep $((attempt * 5)); }
  done
  return 1
}

with_test=false
with_python=true
for flag in "$@"; do
  case $flag in
    --test) with_test=true ;;
    --no-python) with_python=false ;;
    *) die "unknown flag $flag (--test, --no-python)" ;;
  esac
done
mkdir -p build

# --- Debian's packages
command -v apt-get > /dev/null || die "this script knows Debian's apt only; README.md lists the libraries to install by hand"
as_root=()
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo)
fi

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]; }

missing_of() {  # PACKAGE...: prints those that aren't installed
  local package
  for package in "$@"; do
    is_installed "$package" || echo "$package"
  done
}

lists_updated=false
apt_install() {  # PACKAGE...
  [ $# -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || command -v sudo > /dev/null || die "these packages are missing, and there is no sudo to install them: $*"
  if ! $lists_updated; then
    retry "${as_root[@]}" apt-get -qq -o Acquire::Retries=3 update || say "apt-get update failed, trying with the lists there are"
    lists_updated=true
  fi
  say "installing $# packages by apt: $*"
  retry "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 \
    install --no-install-recommends "$@" > build/apt.log 2>&1 < /dev/null
}

packages=(cmake ninja-build g++ ccache flatbuffers-compiler libflatbuffers-dev libsimdjson-dev libcli11-dev nlohmann-json3-dev
          libpcre2-dev libxxhash-dev libgtest-dev pkg-config ca-certificates python3
          dpkg-dev xz-utils)  # the last two for the source tarballs
if $with_python || $with_test; then packages+=(python3-venv); fi
mapfile -t missing < <(missing_of "${packages[@]}")
apt_install "${missing[@]}" || { tail -5 build/apt.log >&2; die "apt-get install failed, see build/apt.log"; }

if $with_test; then
  mapfile -t missing < <(missing_of googletest g++-aarch64-linux-gnu qemu-user)
  apt_install "${missing[@]}" || say "no cross test: apt could not install ${missing[*]}, see build/apt.log"
fi

# --- XNNPACK
tools/build_xnnpack.sh build/deps/xnnpack

# --- Python
$with_python || exit 0

# The first python3 that can make a venv and is new enough; the system's own after whatever PATH has.
find_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if command -v "$python" > /dev/null && "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

readonly VENV=build/venv
if ! "$VENV/bin/python" -c '' 2> /dev/null; then
  python=$(find_python) || die "no Python of 3.11 or newer with venv"
  options=()
  # A torch that is there already is used, rather than downloaded once more.
  if "$python" -c "import importlib.metadata as m, sys; sys.exit(m.version('torch').split('+')[0] != '$TORCH')" 2> /dev/null; then
    say "using the torch $TORCH that $python has"
    options=(--system-site-packages)
  fi
  rm -rf "$VENV"
  "$python" -m venv "${options[@]}" "$VENV"
fi

pip_install() {  # STAMP REQUIREMENT...: installs once for each set of requirements
  local stamp=$VENV/$1.stamp
  shift
  if [ "$(cat "$stamp" 2> /dev/null)" != "$*" ]; then
    say "installing by pip: $*"
    retry "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" < /dev/null ||
      die "pip install failed, see its message above"
    echo "$*" > "$stamp"
  fi
}

if ! "$VENV/bin/python" -c "import importlib.metadata as m, sys; sys.exit(m.version('torch').split('+')[0] != '$TORCH')" 2> /dev/null; then
  say "torch $TORCH is next: 200 MB for a build without GPU support, several GB if pip's index offers only the default build"
fi
pip_install torch "torch==$TORCH" numpy
pip_install zoo "transformers==$TRANSFORMERS" safetensors tokenizers gguf
if $with_test; then
  pip_install test "executorch==$EXECUTORCH" pytest
  # Qualcomm's library for the backend qnn. Without it its tests are skipped.
  if [ ! -e build/qnn/onnxruntime_qnn/libQnnHtp.so ]; then
    say "installing by pip: onnxruntime-qnn $ONNXRUNTIME_QNN into build/qnn, for tests only; its libraries are Qualcomm's, under the licence that lies beside them"
    retry "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --target build/qnn \
      "onnxruntime-qnn==$ONNXRUNTIME_QNN" < /dev/null || say "no tests on Qualcomm's library: pip could not install onnxruntime-qnn"
  fi
fi
