// Runs a caller's callback and logs its exception, which is a bug of ours, so that other requests go on.
//   guarded_call("on_done", [&] { on_done(std::move(generation)); });
#pragma once
#include <exception>
#include <string_view>

#include "base/log.h"

namespace lockstep {

template <class F>
void guarded_call(std::string_view what, F&& call) {
  try {
    call();
  } catch (const std::exception& e) {
    log_error("a callback of a request failed", {{"callback", what}, {"reason", e.what()}});
  }
}

}  // namespace lockstep
