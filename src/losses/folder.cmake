# Traced losses for the tests in Python (tests/training/test_custom_losses.py).
if(LOCKSTEP_TESTS)
  add_executable(custom_loss_bridge ${CMAKE_SOURCE_DIR}/tests/tools/custom_loss_bridge.cpp)
  target_link_libraries(custom_loss_bridge PRIVATE lockstep_losses)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS custom_loss_bridge)
  # Divergences of distillation (tests/oracle/test_distillation.py).
  add_executable(distillation_bridge ${CMAKE_SOURCE_DIR}/tests/tools/distillation_bridge.cpp)
  target_link_libraries(distillation_bridge PRIVATE lockstep_losses lockstep_kernels)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_PROGRAMS distillation_bridge)
endif()
