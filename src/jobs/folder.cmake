# Lists of teachers are TOML (jobs/teacher_file.h).
find_package(PkgConfig REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
target_link_libraries(lockstep_jobs PRIVATE PkgConfig::TOMLPLUSPLUS)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/jobs/teacher_file.cpp PROPERTIES COMPILE_DEFINITIONS TOML_HEADER_ONLY=0)
