#include "kernels/cuda/launch_errors.h"

#include "base/error.h"

namespace lockstep {

void fail_launch(const char* error, const char* error_name, const char* what) {
  fail(ErrorCode::internal, "CUDA: a launch was refused: {} ({}), of {}", error, error_name, what);
}
void fail_scratch(std::size_t bytes) { fail(ErrorCode::resource_exhausted, "{} bytes of GPU memory for a kernel's scratch could not be allocated", bytes); }

}  // namespace lockstep
