// Where a long piece of work lets more urgent work run: between two of its kernels, on the same thread, with buffers of its own. The device's
// backend asks before each kernel (kernels/launch.h); who decides is serving/executor.h.
#pragma once
#include <cstdint>

namespace lockstep {

class PausePoint {
 public:
  virtual ~PausePoint() = default;
  // Before each kernel; returns when the piece goes on.
  virtual void pause() = 0;
  // Multiply-adds that a kernel which can be launched in parts should have at most; 0: no limit. Changes no bit.
  virtual std::int64_t longest_kernel() const = 0;
};

}  // namespace lockstep
