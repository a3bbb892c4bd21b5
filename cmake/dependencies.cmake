# Every third-party library as one target dovetail_<name>, from Debian's packages; XNNPACK and its two helpers from
# DOVETAIL_XNNPACK_PREFIX where Debian's are too old (tools/build_xnnpack.sh makes that folder).
find_package(PkgConfig REQUIRED)

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
target_link_libraries(dovetail_pthreadpool INTERFACE ${PTHREADPOOL_LIBRARY} Threads::Threads)
target_link_libraries(dovetail_xnnpack INTERFACE ${XNNPACK_LIBRARY})
if(XNNPACK_MICROKERNELS)
  target_link_libraries(dovetail_xnnpack INTERFACE ${XNNPACK_MICROKERNELS})
endif()
target_link_libraries(dovetail_xnnpack INTERFACE dovetail_pthreadpool ${CPUINFO_LIBRARY} m Threads::Threads)

# flatbuffers is header-only for us; the headers of our schemas are made by flatc in the build.
add_library(dovetail_flatbuffers INTERFACE)
find_program(FLATC flatc REQUIRED)
find_path(FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h REQUIRED)
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
find_package(GTest REQUIRED)
target_link_libraries(dovetail_gtest INTERFACE GTest::gtest_main)

pkg_check_modules(SIMDJSON REQUIRED IMPORTED_TARGET simdjson)
add_library(dovetail_simdjson ALIAS PkgConfig::SIMDJSON)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
add_library(dovetail_pcre2 ALIAS PkgConfig::PCRE2)

if(NOT DOVETAIL_RUNTIME_ONLY)
  find_package(CLI11 REQUIRED)
  add_library(dovetail_cli11 ALIAS CLI11::CLI11)
  find_package(nlohmann_json REQUIRED)
  add_library(dovetail_json ALIAS nlohmann_json::nlohmann_json)
endif()
