# Without ccache, headers that nearly every file reads are compiled once for all: a third of a build from nothing. (With ccache
# they are not: it hashes the text of headers, and a compiled one is new in every checkout.) A file still includes what it uses.
#   lockstep_precompile(TARGET KIND): targets of one KIND have the same compiler flags; the first one compiles the headers.
set(headers_library <algorithm> <atomic> <chrono> <functional> <map> <memory> <mutex> <optional> <set> <string> <string_view>
    <thread> <vector> <fmt/format.h> <fmt/ranges.h> ${CMAKE_SOURCE_DIR}/src/base/json_templates.h)
set(headers_control ${headers_library})
set(headers_test ${headers_library} <gtest/gtest.h>)
set(headers_quick_test ${headers_test})
set(headers_kernels_vector ${CMAKE_SOURCE_DIR}/src/kernels/prelude.h)
set(headers_kernels_scalar ${CMAKE_SOURCE_DIR}/src/kernels/prelude.h)
set(headers_kernels_traced ${CMAKE_SOURCE_DIR}/src/kernels/prelude.h)
set(headers_kernels_cuda_host ${CMAKE_SOURCE_DIR}/src/kernels/prelude.h ${CMAKE_SOURCE_DIR}/src/kernels/cuda/thread.h)
function(lockstep_precompile target kind)
  if(CCACHE OR LOCKSTEP_SANITIZE OR LOCKSTEP_TSAN)
    return()
  endif()
  get_property(first GLOBAL PROPERTY LOCKSTEP_HEADERS_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${headers_${kind}})
    set_property(GLOBAL PROPERTY LOCKSTEP_HEADERS_${kind} ${target})
  endif()
endfunction()

# What waits for others (files, sockets, the executor) and spends its time in libraries is compiled in three quarters of the time.
set(control_folders "^(launch|losses|serving|fleet|planning|parity|trained|host|runs|rl|jobs|benchmark|cli)$")

# Tests that wait for what they test are compiled in two thirds of the time without optimisation; the others compute beside it (references,
# sums over a whole model) and have -O1, in three quarters of the time that -O2 takes.
set(quick_tests "^(base|observe|parallel|launch|model|checkpoint|sync|text|engine|train|losses|serving|fleet|planning|parity|trained|host|runs|jobs|rl|api|http|cli|store|benchmark)$")

# What is checked for races: all that shares memory between threads, and whoever drops what others hold too, for a release that
# ThreadSanitizer does not see looks like a race. Not the kernels: they run inside the executor alone
# and hold nothing; how attention's items wait for one another is tested beside the thread pool (AnIndexMayWaitForTheOneBeforeIt).
set(thread_checks -O1 -g1 -fsanitize=thread)
set(thread_checked "^(base|observe|tensor|parallel|launch|model|checkpoint|sync|text|engine|train|store|losses|serving|fleet|planning|parity|trained|host|runs|rl|jobs|api|http|cli)$")

# Headers and templates are most of what a file costs to compile: folders of the control side are compiled sixteen files at a time, their
# tests twelve, which more than halves a build from nothing. Names in anonymous namespaces are therefore unique within a folder, and among its tests. Who edits
# one file over and over turns it off (-DLOCKSTEP_UNITY=OFF); builds of their own for sanitizers are always without, so that each file is seen to include what it uses.
option(LOCKSTEP_UNITY "Compile several files of a folder as one" ON)
set(files_at_once 16)
set(tests_at_once 12)
if(LOCKSTEP_SANITIZE OR LOCKSTEP_TSAN)
  set(LOCKSTEP_UNITY OFF)
endif()

# Kills and faults at places that tests name, for programs of tests alone: it stands before lockstep_base, whose kill_point does nothing.
function(lockstep_faults)
  if(LOCKSTEP_TESTS)
    add_library(faults OBJECT ${CMAKE_SOURCE_DIR}/tests/tools/faults.cpp)
    target_include_directories(faults PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(faults PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  endif()
endfunction()

# lockstep_test_tool(NAME LIBRARIES...): the program NAME of tests/tools/NAME.cpp, which tests in Python and scripts run. Compiled as tests that compute are:
# with a compiler's defaults each would instantiate the whole of JSON's templates for itself.
function(lockstep_test_tool name)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/tools/${name}.cpp)
  target_link_libraries(${name} PRIVATE ${ARGN})
  target_compile_definitions(${name} PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}" GTEST_HAS_PTHREAD=1) # which tests have, whose headers these are
  target_compile_options(${name} PRIVATE -O1)
  lockstep_precompile(${name} test)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS ${name})
endfunction()

# lockstep_folder(NAME LIBRARIES...): the library lockstep_NAME of src/NAME/**.cpp and, beside it, the test program
# test_NAME of src/NAME/**_test.cpp. Files are found, not listed: adding a file is adding a file.
function(lockstep_folder name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(_test|/main|/(mpi|nccl)_module)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(sources)
    add_library(lockstep_${name} STATIC ${sources})
    target_include_directories(lockstep_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(lockstep_${name} PUBLIC ${ARGN})
    if(LOCKSTEP_TSAN AND name MATCHES ${thread_checked})
      target_compile_options(lockstep_${name} PRIVATE ${thread_checks})
      target_link_options(lockstep_${name} PUBLIC -fsanitize=thread)
    endif()
    if(name MATCHES ${control_folders})
      target_compile_options(lockstep_${name} PRIVATE -O1)
      lockstep_precompile(lockstep_${name} control)
    elseif(NOT name MATCHES "^(base|numerics|tensor|kernels)$")
      lockstep_precompile(lockstep_${name} library)
    endif()
    # json_templates holds all of a library's members, used or not; those that numbers go through have writers of their own (api/json_text.h).
    file(GLOB json_templates ${CMAKE_SOURCE_DIR}/src/${name}/json_templates.cpp)
    set_source_files_properties(${json_templates} PROPERTIES COMPILE_OPTIONS -O1)
    if(LOCKSTEP_UNITY AND NOT name MATCHES "^(numerics|kernels)$")
      set_target_properties(lockstep_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files_at_once})
      # kill_point: a linker takes tests/tools/faults.cpp instead, so nothing else may stand in its object. json_templates: long by itself.
      file(GLOB alone ${CMAKE_SOURCE_DIR}/src/${name}/kill_point.cpp ${CMAKE_SOURCE_DIR}/src/${name}/json_templates.cpp)
      set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      target_compile_options(lockstep_${name} PRIVATE -Wno-subobject-linkage) # it takes the second file of a batch for a header
    endif()
  else()
    add_library(lockstep_${name} INTERFACE)
    target_include_directories(lockstep_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(lockstep_${name} INTERFACE ${ARGN})
  endif()
  if(LOCKSTEP_TESTS AND tests)
    find_package(GTest REQUIRED)
    add_executable(test_${name} ${tests})
    target_link_libraries(test_${name} PRIVATE faults lockstep_${name} GTest::gtest_main rapidcheck)
    target_compile_definitions(test_${name} PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS test_${name})
    if(LOCKSTEP_UNITY AND NOT name STREQUAL numerics)
      set_target_properties(test_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${tests_at_once})
      target_compile_options(test_${name} PRIVATE -Wno-subobject-linkage)
      # Those that bring an operator new of their own: inlined into others it looks mismatched to the compiler.
      file(GLOB_RECURSE alone ${CMAKE_SOURCE_DIR}/src/${name}/allocation_failure_test.cpp ${CMAKE_SOURCE_DIR}/src/${name}/checkpoint_memory_test.cpp
                        ${CMAKE_SOURCE_DIR}/src/${name}/custom_loss_memory_test.cpp)
      set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    if(name MATCHES ${quick_tests})
      target_compile_options(test_${name} PRIVATE -O0)
      lockstep_precompile(test_${name} quick_test)
    else()
      target_compile_options(test_${name} PRIVATE -O1)
      lockstep_precompile(test_${name} test)
    endif()
  endif()
  include(${CMAKE_SOURCE_DIR}/src/${name}/folder.cmake OPTIONAL) # flags of single files, extra libraries
endfunction()

# The test program test_system of tests/system/**_test.cpp: what holds for several folders at once.
function(lockstep_system_tests)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/system/*_test.cpp)
  if(LOCKSTEP_TESTS AND tests)
    find_package(GTest REQUIRED)
    add_executable(test_system ${tests})
    target_include_directories(test_system PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(test_system PRIVATE faults ${ARGN} GTest::gtest_main rapidcheck)
    target_compile_definitions(test_system PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS test_system)
    target_compile_options(test_system PRIVATE -O1)
    lockstep_precompile(test_system test)
    if(LOCKSTEP_UNITY)
      set_target_properties(test_system PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
      # It reads the engine's own tools of tests, which have names of golden_tools.h.
      set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/system/sampling_distribution_test.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endif()
endfunction()

# The program build/lockstep, once src/cli/main.cpp stands; where tests are built build/lockstep_faults beside it, for those of them
# that kill it or take away its disk.
function(lockstep_program)
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
    set(programs lockstep)
    if(LOCKSTEP_TESTS)
      list(APPEND programs lockstep_faults)
      set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS lockstep_faults)
    endif()
    foreach(program ${programs})
      add_executable(${program} ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
      # Shared libraries that stand in ../lib beside the program's own folder are its own (the wheel of python/ brings them so); DT_RPATH,
      # which holds for what those need too, and comes before LD_LIBRARY_PATH.
      set_target_properties(${program} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
      target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
    endforeach()
    target_link_libraries(lockstep PRIVATE lockstep_cli)
    if(LOCKSTEP_TESTS)
      target_link_libraries(lockstep_faults PRIVATE faults lockstep_cli)
    endif()
  endif()
  get_property(programs GLOBAL PROPERTY LOCKSTEP_TEST_PROGRAMS)
  add_custom_target(unit_tests DEPENDS ${programs})
endfunction()

# The program test_concurrency, under ThreadSanitizer: what runs on several threads and needs no kernel (base, observe, ranks
# and their devices, the executor, the shared part of api, http) with its tests. Sources are compiled for it alone, so that nothing else is built.
function(lockstep_concurrency_tests)
  find_package(GTest REQUIRED)
  find_package(Boost 1.81 REQUIRED)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/base/*.cpp ${CMAKE_SOURCE_DIR}/src/observe/*.cpp ${CMAKE_SOURCE_DIR}/src/api/*.cpp
       ${CMAKE_SOURCE_DIR}/src/http/*.cpp ${CMAKE_SOURCE_DIR}/src/serving/executor*.cpp ${CMAKE_SOURCE_DIR}/src/parallel/*.cpp
       ${CMAKE_SOURCE_DIR}/src/tensor/cuda_stream.cpp ${CMAKE_SOURCE_DIR}/src/tensor/device.cpp ${CMAKE_SOURCE_DIR}/src/tensor/file_memory.cpp ${CMAKE_SOURCE_DIR}/src/tensor/memory_pool.cpp ${CMAKE_SOURCE_DIR}/src/tensor/stream.cpp)
  # Not what speaks of the generation service; nor death tests, which fork.
  list(FILTER sources EXCLUDE REGEX "(openai_server|page_server|training_server|operations|signals_test|/src/api/[a-z_]*_test|/src/base/kill_point)\\.cpp$")
  list(APPEND sources ${CMAKE_SOURCE_DIR}/tests/tools/faults.cpp)
  foreach(test routes access server_state)
    list(APPEND sources ${CMAKE_SOURCE_DIR}/src/api/${test}_test.cpp)
  endforeach()
  add_executable(test_concurrency ${sources})
  target_include_directories(test_concurrency PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(test_concurrency PRIVATE fmt::fmt OpenSSL::SSL OpenSSL::Crypto Threads::Threads nlohmann_json::nlohmann_json Boost::headers
                                                 GTest::gtest_main rapidcheck)
  target_compile_definitions(test_concurrency PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}" BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED
                                                      BOOST_BEAST_SEPARATE_COMPILATION)
  target_compile_options(test_concurrency PRIVATE ${thread_checks})
  target_link_options(test_concurrency PRIVATE -fsanitize=thread)
endfunction()

# The program test_training_concurrency, under ThreadSanitizer: the training API, whose state many threads share, with the engine and the
# trainers that it runs. Part of the ordinary build, though not of `all`: kernels and text are that build's own.
function(lockstep_training_concurrency_tests)
  find_package(GTest REQUIRED)
  set(sources)
  foreach(folder base store losses serving planning trained host api tensor parallel model checkpoint engine train)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
    list(FILTER found EXCLUDE REGEX "(_test|/(mpi|nccl)_module)\\.cpp$")
    list(APPEND sources ${found})
    set(number 0)
    foreach(source ${found}) # as many at once as of the folder's library: one at a time they were 1,300 seconds of a processor
      math(EXPR batch "${number} / ${files_at_once}")
      math(EXPR number "${number} + 1")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${batch})
    endforeach()
  endforeach()
  # Not the page, and what opens folders and counts memory before a server starts: they have no part in it.
  list(FILTER sources EXCLUDE REGEX "/src/(api/page/|api/openai/|api/fireworks/model_completions|api/operations|serving/(chat_prompt|conversion|local_sampler|loading|prompt_renderer)|planning/(mechanisms|memory_plan|memory_verdict|serving_memory|step_plan|step_simulation|step_time)|trained/call_follower)")
  foreach(shared answer answer_constraint answer_holds answer_run draft_fields held_streams hold_fields keep_field sampling_fields service_tier) # the sampling fields and streams that Fireworks' completions share with OpenAI's
    list(APPEND sources ${CMAKE_SOURCE_DIR}/src/api/openai/${shared}.cpp)
  endforeach()
  add_executable(test_training_concurrency EXCLUDE_FROM_ALL ${sources} ${CMAKE_BINARY_DIR}/messages/api/tinker/tinker_public.pb.cc ${CMAKE_BINARY_DIR}/shapes_text.cpp ${CMAKE_BINARY_DIR}/shape_configs_text.cpp
                                           ${CMAKE_SOURCE_DIR}/src/api/tinker/training_concurrency_test.cpp)
  target_include_directories(test_training_concurrency PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/messages)
  target_link_libraries(test_training_concurrency PRIVATE lockstep_kernels lockstep_text lockstep_parallel SQLite::SQLite3 protobuf::libprotobuf-lite PkgConfig::ZSTD
                                                          PkgConfig::TOMLPLUSPLUS GTest::gtest_main)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/api/tinker/training_concurrency_test.cpp PROPERTIES COMPILE_DEFINITIONS LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(test_training_concurrency PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_MODE GROUP)
  target_compile_options(test_training_concurrency PRIVATE ${thread_checks} -Wno-array-bounds -Wno-subobject-linkage)
  target_link_options(test_training_concurrency PRIVATE -fsanitize=thread)
endfunction()
