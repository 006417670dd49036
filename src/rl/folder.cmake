# Advantages for the tests in Python (tests/oracle/test_advantages.py).
if(LOCKSTEP_TESTS)
  add_executable(advantage_bridge ${CMAKE_SOURCE_DIR}/tests/tools/advantage_bridge.cpp)
  target_link_libraries(advantage_bridge PRIVATE lockstep_rl)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS advantage_bridge)
endif()
