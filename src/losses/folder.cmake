# Traced losses for the tests in Python (tests/training/test_custom_losses.py).
if(LOCKSTEP_TESTS)
  lockstep_test_tool(custom_loss_bridge lockstep_losses)
  # Divergences of distillation (tests/oracle/test_distillation.py).
  lockstep_test_tool(distillation_bridge lockstep_losses lockstep_kernels)
endif()
