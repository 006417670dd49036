# Instantiates every kernel folder's .inl for each vector type. The instruction set is switched on by a pragma after all standard
# headers, so that no inline function of the library is compiled for instructions that a machine may lack.
file(GLOB inl_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*/*.inl)
set(generated ${CMAKE_BINARY_DIR}/kernels)
set(vector_instances)
set(scalar_instances)
set(traced_instances)
# Sanitizers look at the scalar instances whole and at the vector ones' addresses; traced ones, which are for tests of the
# orders alone and cost most to compile, are left out.
set(speed -O3)
set(vector_checks "")
set(traced_checks "")
if(LOCKSTEP_SANITIZE)
  set(speed -O1)
  set(vector_checks -fno-sanitize=undefined)
  set(traced_checks -fno-sanitize=all)
endif()
foreach(inl ${inl_files})
  get_filename_component(stem ${inl} NAME_WE)
  file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR}/src ${inl})
  foreach(isa scalar avx2 avx512)
    string(SUBSTRING ${isa} 0 1 first)
    string(TOUPPER ${first} first)
    string(SUBSTRING ${isa} 1 -1 rest)
    set(pragma "")
    if(isa STREQUAL avx512)
      set(pragma "#include <immintrin.h>\n#pragma GCC push_options\n#pragma GCC target(\"avx512f,avx512bw,avx512dq,avx512vl\")\n")
    endif()
    set(common "#include \"kernels/prelude.h\"\n#define LOCKSTEP_INTEGER_DOT \"numerics/isa/integer_dot_")
    set(tail "#include \"kernels/vector_tools.h\"\n#include \"${relative}\"\n")
    file(CONFIGURE OUTPUT ${generated}/${stem}_${isa}.cpp CONTENT "${common}${isa}.h\"\n${pragma}#define LOCKSTEP_VECTOR ${first}${rest}Vec\n#include \"numerics/isa/${isa}.h\"\n${tail}")
    file(CONFIGURE OUTPUT ${generated}/${stem}_traced_${isa}.cpp CONTENT "${common}traced.h\"\n#define LOCKSTEP_VECTOR TracedVec<${first}${rest}Tiles>\n#include \"numerics/isa/traced.h\"\n${tail}")
    if(isa STREQUAL scalar)
      list(APPEND scalar_instances ${generated}/${stem}_${isa}.cpp)
    else()
      list(APPEND vector_instances ${generated}/${stem}_${isa}.cpp)
    endif()
    list(APPEND traced_instances ${generated}/${stem}_traced_${isa}.cpp)
  endforeach()
endforeach()
# Three libraries of objects, since precompiled headers want the same flags in every file that reads them.
foreach(kind vector scalar traced)
  add_library(kernels_${kind} OBJECT ${${kind}_instances})
  target_link_libraries(kernels_${kind} PRIVATE lockstep_numerics lockstep_tensor)
  lockstep_precompile(kernels_${kind} kernels_${kind})
  target_sources(lockstep_kernels PRIVATE $<TARGET_OBJECTS:kernels_${kind}>)
endforeach()
target_compile_options(kernels_vector PRIVATE ${speed} ${vector_checks} -fno-tree-vectorize -fno-tree-slp-vectorize -Wno-maybe-uninitialized -Wno-uninitialized)
# Scalar and traced instances are what vector ones are held to, on small shapes. Unrolled over sixteen lanes they took as long to compile as all of
# those: a traced head 29 seconds of a processor for 5, a scalar linear layer 24 for 7. Loops over the lanes of scalar ones the compiler may vectorise, which
# changes no bit, since it may not reorder a sum: lane by lane each operation is more than a hundred instructions, and tests run these kernels a lot.
target_compile_options(kernels_scalar PRIVATE -O1 -ftree-vectorize -fvect-cost-model=dynamic -mprefer-vector-width=128)
target_compile_options(kernels_traced PRIVATE -Og ${traced_checks})

# The CUDA forms (src/kernels/*/*.cu) for the host executor: the same source, compiled as C++ (kernels/cuda/thread.h).
file(GLOB cuda_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*/*.cu)
set(device_files ${cuda_files})
list(FILTER cuda_files EXCLUDE REGEX "/kernels/cuda/")  # the launcher on GPUs alone
set(host_instances)
foreach(cu ${cuda_files})
  get_filename_component(stem ${cu} NAME_WE)
  file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR}/src ${cu})
  file(CONFIGURE OUTPUT ${generated}/${stem}_cuda_host.cpp CONTENT "#include \"${relative}\"\n")
  list(APPEND host_instances ${generated}/${stem}_cuda_host.cpp)
endforeach()
add_library(kernels_cuda_host OBJECT ${host_instances})
target_link_libraries(kernels_cuda_host PRIVATE lockstep_numerics lockstep_tensor)
target_compile_options(kernels_cuda_host PRIVATE -O1)
lockstep_precompile(kernels_cuda_host kernels_cuda_host)
target_sources(lockstep_kernels PRIVATE $<TARGET_OBJECTS:kernels_cuda_host>)
# By nvcc, for GPUs: for each architecture by itself when named (ninja cuda_90a), and into the program where it has them.
if(LOCKSTEP_NVCC_FOUND)
  foreach(architecture ${LOCKSTEP_CUDA_ARCHITECTURES})
    lockstep_cuda_objects(objects ${architecture} ${device_files})
    add_custom_target(cuda_kernels_${architecture} DEPENDS ${objects})
    add_custom_target(cuda_${architecture})
    add_dependencies(cuda_${architecture} cuda_kernels_${architecture} cuda_stream_object)
  endforeach()
endif()
if(LOCKSTEP_CUDA_FOUND)
  lockstep_cuda_objects(objects "${LOCKSTEP_CUDA_ARCHITECTURES}" ${device_files})
  target_sources(lockstep_kernels PRIVATE ${objects})
  # Of one file, so that switching the GPU code on or off compiles no kernel again.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cuda/no_launcher.cpp PROPERTIES COMPILE_DEFINITIONS LOCKSTEP_CUDA SKIP_PRECOMPILE_HEADERS ON)
  # The control of tools/gpu_checks.py: the tests with kernels whose products and sums nvcc may contract, which a GPU must be seen to differ in.
  if(LOCKSTEP_TESTS)
    list(FILTER device_files INCLUDE REGEX "/(elementwise|rms_norm|rope|attention)\\.cu$")
    lockstep_cuda_objects(contracted "${LOCKSTEP_CUDA_ARCHITECTURES}" CONTRACTED ${device_files})
    add_executable(test_kernels_contracted EXCLUDE_FROM_ALL $<TARGET_OBJECTS:test_kernels> ${contracted})
    target_link_libraries(test_kernels_contracted PRIVATE faults lockstep_kernels GTest::gtest_main rapidcheck)
  endif()
endif()

# The free order competes with kernels, and is compiled as they are; alone, since one of two files switches AVX-512 on.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/free_order/free_product.cpp ${CMAKE_SOURCE_DIR}/src/kernels/free_order/free_product_avx512.cpp
  ${CMAKE_SOURCE_DIR}/src/kernels/free_order/multiply_rate.cpp ${CMAKE_SOURCE_DIR}/src/kernels/free_order/multiply_rate_avx512.cpp PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-O3;-fno-tree-vectorize;-fno-tree-slp-vectorize;-Wno-maybe-uninitialized;-Wno-uninitialized")

# Linear layers in 8 bits for the tests in Python (tests/oracle/test_eight_bits.py).
if(LOCKSTEP_TESTS)
  lockstep_test_tool(eight_bit_bridge lockstep_kernels)
endif()
