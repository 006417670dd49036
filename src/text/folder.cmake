# PCRE2 runs the splitting patterns of tokenizer.json; utf8proc has the tables of normalization.
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
target_link_libraries(lockstep_text PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC)
# Grammars for the tests in Python (tests/oracle/test_schemas.py).
if(LOCKSTEP_TESTS)
  add_executable(schema_bridge ${CMAKE_SOURCE_DIR}/tests/tools/schema_bridge.cpp)
  target_link_libraries(schema_bridge PRIVATE lockstep_text)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS schema_bridge)
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/text/template/chat_template.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON) # uses namespace jinja
