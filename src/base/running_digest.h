// XXH3-128 with seed 0 of bytes that come in parts: what xxh3_128_hex (base/hash.h) says of all of them. One thread.
//   RunningDigest digest; digest.update(part, bytes); digest.update(next, more); const std::string hex = digest.hex();
#pragma once
#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

class RunningDigest {
 public:
  RunningDigest();
  ~RunningDigest();
  RunningDigest(RunningDigest&&) noexcept;
  RunningDigest& operator=(RunningDigest&&) noexcept;
  void update(const void* data, std::size_t bytes);
  std::string hex() const;  // of what has come so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
