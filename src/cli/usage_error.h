// The error of a command line, and of a config key: exit code 2.
//   throw UsageError("--epochs is 3 and --steps is 9, allowed is one of them");
#pragma once
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {

class UsageError : public Error {
 public:
  explicit UsageError(std::string message) : Error(ErrorCode::invalid_argument, std::move(message)) {}
};

// The result of `read`, which reads the value of an option; an Error becomes a UsageError with the same message.
template <class Read>
auto as_usage(const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    throw UsageError(e.message());
  }
}

}  // namespace lockstep
