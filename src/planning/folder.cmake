# The catalog of training shapes (planning/shape_catalog.h) and the configs of its models (planning/shape_configs.h): compiled into the library
# as texts.
set(shapes ${CMAKE_SOURCE_DIR}/shapes/catalog.toml)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/shapes_text.cpp
  COMMAND ${CMAKE_COMMAND} -DINPUT=${shapes} -DOUTPUT=${CMAKE_BINARY_DIR}/shapes_text.cpp -DHEADER=planning/shape_catalog.h
          -DFUNCTION=published_shapes_toml -P ${CMAKE_SOURCE_DIR}/cmake/TextBytes.cmake
  DEPENDS ${shapes} ${CMAKE_SOURCE_DIR}/cmake/TextBytes.cmake VERBATIM)
file(GLOB configs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/shapes/configs/*.json)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/shape_configs_text.cpp
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_SOURCE_DIR}/shapes/configs -DOUTPUT=${CMAKE_BINARY_DIR}/shape_configs_text.cpp
          -DHEADER=planning/shape_configs.h -DROW=ShapeConfig -DFUNCTION=shape_configs -P ${CMAKE_SOURCE_DIR}/cmake/TextTable.cmake
  DEPENDS ${configs} ${CMAKE_SOURCE_DIR}/cmake/TextTable.cmake VERBATIM)
target_sources(lockstep_planning PRIVATE ${CMAKE_BINARY_DIR}/shapes_text.cpp ${CMAKE_BINARY_DIR}/shape_configs_text.cpp)
# Each an object of its own: a night's programs (cmake/Night.cmake) take them from the library, and would get what they have themselves with them.
set_source_files_properties(${CMAKE_BINARY_DIR}/shapes_text.cpp ${CMAKE_BINARY_DIR}/shape_configs_text.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
find_package(PkgConfig REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
target_link_libraries(lockstep_planning PRIVATE PkgConfig::TOMLPLUSPLUS)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/planning/shape_file.cpp PROPERTIES COMPILE_DEFINITIONS TOML_HEADER_ONLY=0)
