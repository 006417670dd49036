# main.cpp alone runs before the processor is checked: any x86-64 must be able to.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/main.cpp PROPERTIES COMPILE_OPTIONS
  "-mno-avx512f;-mno-avx2;-mno-avx;-mno-fma;-mno-f16c;-mno-sse3")

find_package(PkgConfig REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
target_link_libraries(lockstep_cli PRIVATE PkgConfig::TOMLPLUSPLUS PkgConfig::LIBEDIT nlohmann_json::nlohmann_json)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/toml.cpp PROPERTIES COMPILE_DEFINITIONS TOML_HEADER_ONLY=0)

# The commit that was configured, for --version.
set(commit "unknown")
find_program(GIT git)
if(GIT AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT} describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0 AND described)
    set(commit ${described})
  endif()
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/version.cpp PROPERTIES COMPILE_DEFINITIONS "LOCKSTEP_COMMIT=\"${commit}\";LOCKSTEP_VERSION=\"${PROJECT_VERSION}\"")
