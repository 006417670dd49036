// A budget for compiling one grammar: inner loops charge their steps, and stop when the client has disconnected.
//   SchemaWork work; work.charge(states * classes);
// Limits of single parts do not bound their sum: a request may hold ten thousand patterns. One grammar, one thread.
#pragma once
#include <cstddef>

#include "base/client_work.h"
#include "base/error.h"

namespace lockstep {

class SchemaWork {
 public:
  static constexpr std::size_t kMost = 50'000'000;  // a few tenths of a second
  void charge(std::size_t steps) {
    done_ += steps;
    ClientWork::check();
    if (done_ > kMost) fail(ErrorCode::resource_exhausted, "the schema's patterns, bounds and combinations take more than the {} steps of work allowed", kMost);
  }
  std::size_t done() const { return done_; }

 private:
  std::size_t done_ = 0;
};

}  // namespace lockstep
