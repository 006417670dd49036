// A caller's callback, run so that its exception, a bug of ours, is logged and everybody else's requests go on.
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
