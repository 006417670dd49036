# The CUDA runtime, in the library itself: a machine without a driver runs the same program.
if(LOCKSTEP_CUDA_FOUND)
  target_compile_definitions(lockstep_tensor PRIVATE LOCKSTEP_CUDA)
  target_include_directories(lockstep_tensor SYSTEM PRIVATE ${LOCKSTEP_CUDA_INCLUDE})
  target_link_libraries(lockstep_tensor PUBLIC ${LOCKSTEP_CUDA_RUNTIME} rt dl Threads::Threads)
endif()
# What calls that runtime, compiled beside the kernels' GPU code where the program has neither (cmake/Cuda.cmake).
if(LOCKSTEP_NVCC_FOUND)
  add_library(cuda_stream_object OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/src/tensor/cuda_stream.cpp)
  target_compile_definitions(cuda_stream_object PRIVATE LOCKSTEP_CUDA)
  target_include_directories(cuda_stream_object SYSTEM PRIVATE ${LOCKSTEP_CUDA_INCLUDE})
  target_include_directories(cuda_stream_object PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(cuda_stream_object PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
endif()
