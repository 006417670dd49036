# -DLOCKSTEP_FUZZ=ON with clang: coverage-guided fuzzing of the readers of foreign files.
#   cmake -S . -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DLOCKSTEP_FUZZ=ON && ninja -C build-fuzz safetensors_fuzz
#   build-fuzz/safetensors_fuzz -max_total_time=60
option(LOCKSTEP_FUZZ "Build the libFuzzer targets (clang only)" OFF)
if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang: the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  add_executable(safetensors_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/safetensors_fuzz.cpp ${CMAKE_SOURCE_DIR}/src/checkpoint/safetensors.cpp
                 ${CMAKE_SOURCE_DIR}/src/checkpoint/safetensors_header.cpp)
  target_include_directories(safetensors_fuzz PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(safetensors_fuzz PRIVATE lockstep_base nlohmann_json::nlohmann_json)
  target_compile_options(safetensors_fuzz PRIVATE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  target_link_options(safetensors_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
endif()
