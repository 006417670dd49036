// The project's one exception type, and the one way to throw it.
//   fail(ErrorCode::invalid_argument, "temperature is {}, allowed is 0 to 100", t);
// All code throws Error; http and cli map it once to a status or an exit code. Thread-safe (plain values).
#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class ErrorCode {
  invalid_argument,    // the caller's value is not allowed
  not_found,           // a file, model, route or name that is not there
  already_exists,      // would overwrite something
  corrupt_file,        // a file contradicts itself or is truncated
  io,                  // the operating system refused: disk full, permission, ...
  resource_exhausted,  // a limit of ours is reached; later may work
  unsupported,         // understood, and not offered
  cancelled,           // the user interrupted
  numeric,             // NaN, infinity or overflow in a computation
  internal,            // a bug of ours
};
std::string_view error_code_name(ErrorCode code);

// A code, one sentence that names the field, the value got and the values allowed, and the chain of what was
// being done (innermost first). what() gives "sentence (while A; while B)".
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::vector<std::string>& chain() const { return chain_; }
  const char* what() const noexcept override { return text_.c_str(); }
  void add_context(std::string doing);  // "reading config.json"

 private:
  ErrorCode code_;
  std::string message_;
  std::vector<std::string> chain_;
  std::string text_;
};

[[noreturn, gnu::cold]] void fail_with_arguments(ErrorCode code, fmt::string_view format, fmt::format_args args);

template <class... A>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<A...> format, A&&... args) {
  fail_with_arguments(code, format, fmt::make_format_args(args...));  // not here: it is compiled for each of a thousand lists of arguments
}

// Runs `work`; an Error that leaves it carries `doing` in its chain.
template <class F>
auto with_context(std::string doing, F&& work) -> decltype(work()) {
  try {
    return work();
  } catch (Error& e) {
    e.add_context(std::move(doing));
    throw;
  }
}

// "; did you mean 'temperature'?" for the nearest candidate: one that differs in at most a third of its letters, and at most 3, or that begins with
// `got`. Without one "".
std::string did_you_mean(std::string_view got, const std::vector<std::string>& candidates);

}  // namespace lockstep
