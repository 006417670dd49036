# The live page (web/): bundled by esbuild, packed by gzip, and compiled into the library as bytes (service/page_bundle.h).
find_program(ESBUILD esbuild REQUIRED)
find_program(GZIP gzip REQUIRED)
find_file(CHART_JS chart.esm.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH REQUIRED)
set(page ${CMAKE_BINARY_DIR}/page)
file(GLOB page_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/*.ts)
add_custom_command(
  OUTPUT ${page}/app.js
  COMMAND ${ESBUILD} ${CMAKE_SOURCE_DIR}/web/main.ts --bundle --minify --format=iife --target=es2020 --charset=utf8 --log-level=warning
          --legal-comments=inline --alias:chart.js=${CHART_JS} --outfile=${page}/app.js
  DEPENDS ${page_sources} ${CHART_JS} VERBATIM)
add_custom_command(
  OUTPUT ${page}/app.css
  COMMAND ${ESBUILD} ${CMAKE_SOURCE_DIR}/web/app.css --minify --target=es2020 --charset=utf8 --log-level=warning --outfile=${page}/app.css
  DEPENDS ${CMAKE_SOURCE_DIR}/web/app.css VERBATIM)
add_custom_command(
  OUTPUT ${page}/page_bytes.cpp
  COMMAND ${CMAKE_COMMAND} -DGZIP=${GZIP} -DOUTPUT=${page}/page_bytes.cpp -DINDEX=${CMAKE_SOURCE_DIR}/web/index.html -DSCRIPT=${page}/app.js
          -DSTYLE=${page}/app.css -P ${CMAKE_SOURCE_DIR}/cmake/PageBytes.cmake
  DEPENDS ${CMAKE_SOURCE_DIR}/web/index.html ${page}/app.js ${page}/app.css ${CMAKE_SOURCE_DIR}/cmake/PageBytes.cmake VERBATIM)
target_sources(lockstep_service PRIVATE ${page}/page_bytes.cpp)

# The catalog of training shapes (service/training/shape_catalog.h), likewise.
set(shapes ${CMAKE_SOURCE_DIR}/shapes/catalog.toml)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/shapes_text.cpp
  COMMAND ${CMAKE_COMMAND} -DINPUT=${shapes} -DOUTPUT=${CMAKE_BINARY_DIR}/shapes_text.cpp -DHEADER=service/training/shape_catalog.h
          -DFUNCTION=published_shapes_toml -P ${CMAKE_SOURCE_DIR}/cmake/TextBytes.cmake
  DEPENDS ${shapes} ${CMAKE_SOURCE_DIR}/cmake/TextBytes.cmake VERBATIM)
target_sources(lockstep_service PRIVATE ${CMAKE_BINARY_DIR}/shapes_text.cpp)
find_package(PkgConfig REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
target_link_libraries(lockstep_service PRIVATE PkgConfig::TOMLPLUSPLUS)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/service/training/shape_file.cpp PROPERTIES COMPILE_DEFINITIONS TOML_HEADER_ONLY=0)
# Traced losses for the tests in Python (tests/training/test_custom_losses.py).
if(LOCKSTEP_TESTS)
  add_executable(custom_loss_bridge ${CMAKE_SOURCE_DIR}/tests/tools/custom_loss_bridge.cpp)
  target_link_libraries(custom_loss_bridge PRIVATE lockstep_service)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS custom_loss_bridge)
endif()
