// A GPU that was promised is there: with LOCKSTEP_GPU_REQUIRED set, as tools/gpu_checks.py sets it, a run of these tests that compared
// nothing on a GPU fails. Without it a machine without a GPU compares what it has (expect_same_everywhere).
#include <cstdlib>

#include "kernels/kernel_test_tools.h"

namespace lockstep {
namespace {

TEST(Gpu, IsThereWhereItIsRequired) {
  if (std::getenv("LOCKSTEP_GPU_REQUIRED") != nullptr) {
    EXPECT_TRUE(has_gpu()) << "no kernel was compared on a GPU";
  }
}

}  // namespace
}  // namespace lockstep
