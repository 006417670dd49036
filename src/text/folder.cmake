# PCRE2 runs the splitting patterns of tokenizer.json; utf8proc has the tables of normalization.
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
target_link_libraries(lockstep_text PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC)
# Grammars for the tests in Python (tests/oracle/test_schemas.py).
if(LOCKSTEP_TESTS)
  lockstep_test_tool(schema_bridge lockstep_text)
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/text/template/chat_template.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON) # uses namespace jinja
