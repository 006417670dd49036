// The interface by which a long piece of work lets more urgent work run between two of its kernels, on the same thread. The device's backend calls
// pause() before each kernel (kernels/launch.h); serving/executor.h implements it.
//   struct Never final : PausePoint { void pause() override {} std::int64_t longest_kernel() const override { return 0; } };
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
