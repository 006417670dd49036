# Stores behind a server speak through libcurl (transfer.cpp).
find_package(CURL 7.75 REQUIRED)
target_link_libraries(lockstep_sync PRIVATE CURL::libcurl z zstd) # those of arc_delta.cpp
# A wire between two network namespaces, with delay, loss and cuts (bench/regions.py).
if(LOCKSTEP_TESTS)
  add_executable(wire ${CMAKE_SOURCE_DIR}/tests/tools/wire.cpp)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS wire)
endif()
