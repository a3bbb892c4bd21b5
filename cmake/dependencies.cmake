# Every third-party library as one target dovetail_<name>, from Debian's packages; XNNPACK and its two helpers from
# DOVETAIL_XNNPACK_PREFIX where Debian's are too old (tools/build_xnnpack.sh makes that folder).
find_package(PkgConfig REQUIRED)

if(CMAKE_CROSSCOMPILING AND DOVETAIL_XNNPACK_PREFIX)
  list(APPEND CMAKE_FIND_ROOT_PATH ${DOVETAIL_XNNPACK_PREFIX})
endif()
add_library(dovetail_xnnpack INTERFACE)
add_library(dovetail_pthreadpool INTERFACE)
find_path(XNNPACK_INCLUDE xnnpack.h HINTS ${DOVETAIL_XNNPACK_PREFIX}/include REQUIRED)
find_path(PTHREADPOOL_INCLUDE pthreadpool.h HINTS ${DOVETAIL_XNNPACK_PREFIX}/include REQUIRED)
find_library(XNNPACK_LIBRARY XNNPACK HINTS ${DOVETAIL_XNNPACK_PREFIX}/lib REQUIRED)
find_library(XNNPACK_MICROKERNELS microkernels-prod HINTS ${DOVETAIL_XNNPACK_PREFIX}/lib)
find_library(PTHREADPOOL_LIBRARY pthreadpool HINTS ${DOVETAIL_XNNPACK_PREFIX}/lib REQUIRED)
find_library(CPUINFO_LIBRARY cpuinfo HINTS ${DOVETAIL_XNNPACK_PREFIX}/lib REQUIRED)
target_include_directories(dovetail_xnnpack SYSTEM INTERFACE ${XNNPACK_INCLUDE})
target_include_directories(dovetail_pthreadpool SYSTEM INTERFACE ${PTHREADPOOL_INCLUDE})
# As imported targets, CMake knows what depends on what and puts the archives in that order.
set(MICROKERNELS_LIBRARY ${XNNPACK_MICROKERNELS})
foreach(lib XNNPACK MICROKERNELS PTHREADPOOL CPUINFO)
  if(${lib}_LIBRARY)
    add_library(dovetail_file_${lib} UNKNOWN IMPORTED)
    set_target_properties(dovetail_file_${lib} PROPERTIES IMPORTED_LOCATION ${${lib}_LIBRARY})
  endif()
endforeach()
target_link_libraries(dovetail_file_PTHREADPOOL INTERFACE Threads::Threads)
if(TARGET dovetail_file_MICROKERNELS)
  target_link_libraries(dovetail_file_XNNPACK INTERFACE dovetail_file_MICROKERNELS)
endif()
target_link_libraries(dovetail_file_XNNPACK INTERFACE dovetail_file_PTHREADPOOL dovetail_file_CPUINFO m)
target_link_libraries(dovetail_pthreadpool INTERFACE dovetail_file_PTHREADPOOL)
target_link_libraries(dovetail_xnnpack INTERFACE dovetail_file_XNNPACK dovetail_pthreadpool)

# Whether XNNPACK's kernels that we have faster ones for, and the tables they are in, can be linked (not from a shared library, which hides them): see
# row_kernels.h, depthwise_kernels.h, block_tiles.h and float_kernels.h in src/backends/xnnpack/delegate.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES dovetail_file_XNNPACK)
  check_cxx_source_compiles("
    extern \"C\" {
    void xnn_qd8_f32_qc8w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm();
    void xnn_qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm();
    const void* xnn_init_qd8_f32_qc8w_gemm_config();
    const void* xnn_init_qd8_f32_qb4w_gemm_config();
    }
    int main() {
      xnn_qd8_f32_qc8w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm();
      xnn_qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm();
      return xnn_init_qd8_f32_qc8w_gemm_config() == xnn_init_qd8_f32_qb4w_gemm_config();
    }" DOVETAIL_XNNPACK_ROW_KERNELS)
  check_cxx_source_compiles("
    extern \"C\" {
    void xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_9p32c__avx512skx_mul32();
    void xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_25p32c__avx512skx_mul32();
    const void* xnn_init_qs8_qc8w_dwconv_config();
    }
    int main() {
      xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_9p32c__avx512skx_mul32();
      xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_25p32c__avx512skx_mul32();
      return xnn_init_qs8_qc8w_dwconv_config() == nullptr;
    }" DOVETAIL_XNNPACK_DEPTHWISE_KERNELS)
  check_cxx_source_compiles("
    extern \"C\" {
    void xnn_qd8_f32_qb4w_gemm_minmax_ukernel_8x16c8__avx512vnni_prfm();
    const void* xnn_init_qd8_f32_qb4w_gemm_config();
    }
    int main() {
      xnn_qd8_f32_qb4w_gemm_minmax_ukernel_8x16c8__avx512vnni_prfm();
      return xnn_init_qd8_f32_qb4w_gemm_config() == nullptr;
    }" DOVETAIL_XNNPACK_BLOCK_TILES)
  check_cxx_source_compiles("
    extern \"C\" {
    void xnn_f32_gemm_minmax_ukernel_7x32__avx512f_broadcast();
    const void* xnn_init_f32_gemm_config();
    }
    int main() {
      xnn_f32_gemm_minmax_ukernel_7x32__avx512f_broadcast();
      return xnn_init_f32_gemm_config() == nullptr;
    }" DOVETAIL_XNNPACK_FLOAT_KERNELS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  foreach(kernels ROW_KERNELS DEPTHWISE_KERNELS BLOCK_TILES FLOAT_KERNELS)
    if(DOVETAIL_XNNPACK_${kernels})
      target_compile_definitions(dovetail_xnnpack INTERFACE DOVETAIL_XNNPACK_${kernels})
    endif()
  endforeach()
endif()

# flatbuffers, nlohmann's JSON and xxHash are header-only for us; the headers of our schemas are made by flatc in the build.
add_library(dovetail_flatbuffers INTERFACE)
add_library(dovetail_json INTERFACE)
find_program(FLATC flatc REQUIRED)
find_path(FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h REQUIRED NO_CMAKE_FIND_ROOT_PATH)
find_path(JSON_INCLUDE nlohmann/json.hpp REQUIRED NO_CMAKE_FIND_ROOT_PATH)
add_library(dovetail_xxhash INTERFACE)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED NO_CMAKE_FIND_ROOT_PATH)
if(CMAKE_CROSSCOMPILING)
  # The host's headers serve, but only these: its whole include folder would bring the host's C library with it.
  set(host_include ${CMAKE_BINARY_DIR}/host_include)
  file(MAKE_DIRECTORY ${host_include})
  if(NOT FLATBUFFERS_INCLUDE STREQUAL "${host_include}")
    file(CREATE_LINK ${FLATBUFFERS_INCLUDE}/flatbuffers ${host_include}/flatbuffers SYMBOLIC)
    set(FLATBUFFERS_INCLUDE ${host_include} CACHE PATH "" FORCE)
  endif()
  if(NOT JSON_INCLUDE STREQUAL "${host_include}")
    file(CREATE_LINK ${JSON_INCLUDE}/nlohmann ${host_include}/nlohmann SYMBOLIC)
    set(JSON_INCLUDE ${host_include} CACHE PATH "" FORCE)
  endif()
  if(NOT XXHASH_INCLUDE STREQUAL "${host_include}")
    foreach(header xxhash.h xxh3.h)
      if(EXISTS ${XXHASH_INCLUDE}/${header})
        file(CREATE_LINK ${XXHASH_INCLUDE}/${header} ${host_include}/${header} SYMBOLIC)
      endif()
    endforeach()
    set(XXHASH_INCLUDE ${host_include} CACHE PATH "" FORCE)
  endif()
endif()
target_include_directories(dovetail_json SYSTEM INTERFACE ${JSON_INCLUDE})
target_include_directories(dovetail_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE})
target_compile_definitions(dovetail_xxhash INTERFACE XXH_INLINE_ALL)
file(GLOB schemas CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/format/*.fbs)
set(generated ${CMAKE_BINARY_DIR}/generated)
set(headers)
foreach(schema ${schemas})
  get_filename_component(stem ${schema} NAME_WE)
  add_custom_command(
    OUTPUT ${generated}/format/${stem}_generated.h
    COMMAND ${FLATC} --cpp --cpp-std c++17 --scoped-enums --gen-mutable -o ${generated}/format ${schema}
    DEPENDS ${schema}
    VERBATIM)
  list(APPEND headers ${generated}/format/${stem}_generated.h)
endforeach()
add_custom_target(dovetail_schemas DEPENDS ${headers})
add_dependencies(dovetail_flatbuffers dovetail_schemas)
target_include_directories(dovetail_flatbuffers SYSTEM INTERFACE ${generated} ${FLATBUFFERS_INCLUDE})

add_library(dovetail_gtest INTERFACE)
if(CMAKE_CROSSCOMPILING)
  # Debian's googletest package has the sources, so that it can be built for any target.
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  target_link_libraries(dovetail_gtest INTERFACE gtest_main)
else()
  find_package(GTest REQUIRED)
  target_link_libraries(dovetail_gtest INTERFACE GTest::gtest_main)
endif()

# Without these two a RUNTIME_ONLY build lacks llm: .pte programs run, tokenizers are the application's own.
set(required REQUIRED)
if(DOVETAIL_RUNTIME_ONLY)
  set(required QUIET)
endif()
pkg_check_modules(SIMDJSON ${required} IMPORTED_TARGET simdjson)
if(SIMDJSON_FOUND)
  add_library(dovetail_simdjson ALIAS PkgConfig::SIMDJSON)
endif()
pkg_check_modules(PCRE2 ${required} IMPORTED_TARGET libpcre2-8)
if(PCRE2_FOUND)
  add_library(dovetail_pcre2 ALIAS PkgConfig::PCRE2)
endif()

if(NOT DOVETAIL_RUNTIME_ONLY)
  find_package(CLI11 REQUIRED)
  add_library(dovetail_cli11 ALIAS CLI11::CLI11)
endif()
