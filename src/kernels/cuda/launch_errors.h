// Error functions for launches, in files that nvcc compiles: it does not compile the formatting library.
#pragma once
#include <cstddef>

namespace lockstep {

[[noreturn]] void fail_launch(const char* error, const char* error_name, const char* what);  // internal
[[noreturn]] void fail_scratch(std::size_t bytes);                                           // resource_exhausted

}  // namespace lockstep
