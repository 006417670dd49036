# Values of a GGUF block are decoded each for itself, without a sum: vectorised, they have the same bits, several times faster.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/checkpoint/gguf_types.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON
                            COMPILE_OPTIONS "-O3;-ftree-vectorize")
