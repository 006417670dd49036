# The CUDA runtime, in the library itself: a machine without a driver runs the same program.
if(LOCKSTEP_CUDA_FOUND)
  target_compile_definitions(lockstep_tensor PRIVATE LOCKSTEP_CUDA)
  target_include_directories(lockstep_tensor SYSTEM PRIVATE ${LOCKSTEP_CUDA_INCLUDE})
  target_link_libraries(lockstep_tensor PUBLIC ${LOCKSTEP_CUDA_RUNTIME} rt dl Threads::Threads)
endif()
