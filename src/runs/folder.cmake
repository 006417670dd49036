# The live page (web/): bundled by esbuild, packed by gzip, and compiled into the library as bytes (runs/page_bundle.h).
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
target_sources(lockstep_runs PRIVATE ${page}/page_bytes.cpp)
set_source_files_properties(${page}/page_bytes.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON) # as in planning/folder.cmake

# Preference losses for the tests in Python (tests/oracle/test_preferences.py).
if(LOCKSTEP_TESTS)
  lockstep_test_tool(preference_bridge lockstep_runs)
endif()
