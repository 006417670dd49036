// The work that compiling one grammar may take in all: whoever builds an automaton or looks at a schema again charges the
// steps of its inner loop, and stops when nobody waits for it any more. Limits of single parts do not bound their sum: a request may hold ten thousand patterns.
// One grammar, one thread.
//   SchemaWork work; work.charge(states * classes);
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
    if (done_ > kMost)
      fail(ErrorCode::resource_exhausted, "the schema's patterns, bounds and combinations take more than the {} steps of work allowed", kMost);
  }
  std::size_t done() const { return done_; }

 private:
  std::size_t done_ = 0;
};

}  // namespace lockstep
