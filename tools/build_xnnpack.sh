#!/bin/bash
# Builds XNNPACK, pthreadpool and cpuinfo as static libraries, for this machine or for devices of another architecture. Debian's
# own packages are too old (Debian 12) or choose a wrong kernel: see AVX512VNNIGFNI below.
#
#   tools/build_xnnpack.sh PREFIX [aarch64]
#
# PREFIX gets include/ and lib/. With aarch64, g++-aarch64-linux-gnu compiles. The sources are Debian's own tarballs of a
# newer suite, fetched from the mirror this machine's apt is configured with, through package lists kept apart: the
# system's apt state does not change and nothing is installed. A PREFIX that holds the right version is left alone.
set -euo pipefail

readonly VERSION=20241108-3  # XNNPACK's snapshot, then the revision of this recipe
readonly SUITES=(trixie forky sid)  # tried in this order; a mirror may lack a suite's tarball

die() { echo "build_xnnpack: $*" >&2; exit 1; }

[ $# -ge 1 ] && [ $# -le 2 ] || die "usage: tools/build_xnnpack.sh PREFIX [aarch64]"
arch=${2:-native}
case $arch in native | aarch64) ;; *) die "unknown architecture '$arch' (aarch64, or nothing for this machine's)" ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/tools/build.sh"
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
stamp=$prefix/dovetail-xnnpack.stamp
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$VERSION $arch" ]; then
  exit 0
fi

log=$prefix.log
sources=$(dirname "$prefix")/sources
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: > "$log"
mkdir -p "$sources"

# The address of the Debian archive in this machine's apt configuration: the line of its own release, or else the first
# one that has a component main.
mirror() {
  local codename
  codename=$(sed -n "s/^VERSION_CODENAME=//p" /etc/os-release)
  apt-get indextargets --format '$(RELEASE) $(CODENAME) $(REPO_URI)' 'Component: main' 2>/dev/null |
    awk -v want="$codename" '$1 == want || $2 == want {print $NF; found = 1; exit} !first && !/security/ {first = $NF}
                             END {if (!found && first) print first}'
}

apt_private() {
  apt-get -qq -o Dir::Etc::sourcelist="$work/$suite.list" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$work/$suite" \
    -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

# fetch PACKAGE: leaves the tarball in $sources. Only the tarball is asked for, since mirrors often lack the .dsc files.
fetch() {
  local package=$1 uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  compgen -G "$sources/${package}_*.orig.tar.*" > /dev/null && return
  uri=$(mirror)
  [ -n "$uri" ] || die "apt has no source with component main, so there is no mirror to fetch $package from"
  for suite in "${SUITES[@]}"; do
    if [ ! -d "$work/$suite" ]; then
      mkdir -p "$work/$suite/partial" "$work/cache/archives/partial"
      if [ -e $keyring ]; then
        echo "deb-src [signed-by=$keyring] $uri $suite main" > "$work/$suite.list"
      else
        echo "deb-src $uri $suite main" > "$work/$suite.list"
      fi
      apt_private update >> "$log" 2>&1 || true
    fi
    if (cd "$work" && apt_private source --download-only --tar-only "$package") >> "$log" 2>&1 &&
       compgen -G "$work/${package}_*.orig.tar.*" > /dev/null; then
      mv "$work/${package}"_*.orig.tar.* "$sources/"
      return
    fi
  done
  die "no tarball of $package in Debian ${SUITES[*]} on this machine's mirror; apt's messages are in $log"
}

# unpack PACKAGE: its source folder is $work/PACKAGE; a single top folder in the tarball is taken off.
unpack() {
  local into=$work/unpacked-$1
  mkdir "$into"
  tar -xf "$(compgen -G "$sources/${1}_*.orig.tar.*" | head -1)" -C "$into"
  if [ -e "$into/CMakeLists.txt" ]; then mv "$into" "$work/$1"; else mv "$into"/* "$work/$1"; fi
}

echo "XNNPACK $VERSION for $arch: fetching the sources (5 MB)"
for package in xnnpack pthreadpool fxdiv cpuinfo; do
  fetch "$package"
  unpack "$package"
done

# edit FILE SED: changes lines of a source; it is an error if there is nothing to change.
edit() {
  cp "$1" "$work/before"
  sed -i "$2" "$1"
  ! cmp -s "$work/before" "$1" || die "these sources are others than expected: nothing in ${1#"$work"/} for sed '$2'"
}

# AMX, which this version takes only with GFNI (off below) and leaves out with GCC 12. Of the faults of that GCC's intrinsics one does not matter: its
# _tile_loadconfig tells the compiler of 8 bytes of 64, but the kernels have their own instruction for that. The other does: _tile_loadd does not say
# that it reads memory (no GCC's does), so where a kernel loads what it has just stored in an array of its own, it is told here.
xnnpack=$work/xnnpack
edit "$xnnpack/CMakeLists.txt" '/^OPTION(XNNPACK_ENABLE_AVX512AMX/,/^OPTION/s/VERSION_LESS "13"/VERSION_LESS "11"/'
edit "$xnnpack/src/configs/hardware-config.c" '/use_x86_avx512amx = /s/use_x86_avx512vnnigfni/use_x86_avx512vnni/'
own_array='_tile_loadd([0-9], \(vintile\|weight_buffer\),'
for file in "$xnnpack"/src/{*igemm,*qc4w-gemm}/gen/*avx512amx*.c; do
  edit "$file" "s/$own_array/__asm__ volatile (\"\" ::: \"memory\"); &/"
done
# In a convolution whose last tile has a single row, it reads the first 64 channels again and again: another row's pointer is moved on.
for file in "$xnnpack"/src/*igemm/gen/*16x*avx512amx*.c; do
  edit "$file" '/Directly load input for mr=1/{n;s/a15 += 64/a0 += 64/}'
done

# The GFNI kernel of linears with blocks of 4-bit weights, which this version takes on every AVX512-VNNI processor with GFNI but Zen 4,
# gives wrong results.
flags=(-DXNNPACK_ENABLE_AVX512VNNIGFNI=OFF)
[ "$arch" = native ] || flags+=("-DCMAKE_TOOLCHAIN_FILE=$root/cmake/$arch.cmake")
if command -v ccache > /dev/null; then
  flags+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_ASM_COMPILER_LAUNCHER=ccache)
  export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1  # the work folder has another name each time
fi
echo "XNNPACK $VERSION for $arch: building (about 3.5 minutes on two cores the first time), log in $log"
cmake -G Ninja -S "$work/xnnpack" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
  -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
  -DXNNPACK_LIBRARY_TYPE=static -DXNNPACK_BUILD_TESTS=OFF -DXNNPACK_BUILD_BENCHMARKS=OFF -DXNNPACK_BUILD_ALL_MICROKERNELS=OFF \
  -DXNNPACK_ENABLE_KLEIDIAI=OFF \
  -DCPUINFO_SOURCE_DIR="$work/cpuinfo" -DCPUINFO_LIBRARY_TYPE=static -DPTHREADPOOL_SOURCE_DIR="$work/pthreadpool" \
  -DPTHREADPOOL_LIBRARY_TYPE=static -DFXDIV_SOURCE_DIR="$work/fxdiv" "${flags[@]}" >> "$log" 2>&1 ||
  { tail -20 "$log" >&2; die "cmake failed, see $log"; }

with_progress "$log" ninja -C "$work/build" -j"$(nproc)" || { tail -20 "$log" >&2; die "the build failed, see $log"; }
cmake --install "$work/build" >> "$log" 2>&1

for file in lib/libXNNPACK.a lib/libmicrokernels-prod.a lib/libpthreadpool.a lib/libcpuinfo.a include/xnnpack.h \
            include/pthreadpool.h include/cpuinfo.h; do
  [ -e "$prefix/$file" ] || die "the build made no $prefix/$file, see $log"
done
echo "$VERSION $arch" > "$stamp"
echo "XNNPACK $VERSION for $arch: in $prefix"
