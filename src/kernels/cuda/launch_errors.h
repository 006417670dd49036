// The errors of launches, for files that nvcc compiles: the formatting library is not for it.
#pragma once
#include <cstddef>

namespace lockstep {

[[noreturn]] void fail_launch(const char* error, const char* error_name, const char* what);             // internal
[[noreturn]] void fail_scratch(std::size_t bytes);                                                      // resource_exhausted

}  // namespace lockstep
