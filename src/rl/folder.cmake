# Advantages for the tests in Python (tests/oracle/test_advantages.py).
if(LOCKSTEP_TESTS)
  lockstep_test_tool(advantage_bridge lockstep_rl)
endif()
