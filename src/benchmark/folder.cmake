# The free order competes with kernels, and is compiled as they are; alone, since one of the two files switches AVX-512 on.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/benchmark/free_product.cpp ${CMAKE_SOURCE_DIR}/src/benchmark/free_product_avx512.cpp PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-O3;-fno-tree-vectorize;-fno-tree-slp-vectorize;-Wno-maybe-uninitialized;-Wno-uninitialized")
