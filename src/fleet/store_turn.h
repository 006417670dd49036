// Waiting for a store that somebody else writes: a mirror, a push or a prune of another process, or a save of this one.
//   const auto lock = in_store_turn(std::chrono::steady_clock::now(), [&] { return store.writing(); });
#pragma once
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/seconds.h"

namespace lockstep {

inline constexpr double kStoreSeconds = 60;  // that another writer of the store is waited for

// What `work` returns, which is tried again while it throws resource_exhausted, until kStoreSeconds after `began`.
template <class F>
auto in_store_turn(std::chrono::steady_clock::time_point began, const F& work) {
  while (true) {
    try {
      return work();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::resource_exhausted || seconds_since(began) > kStoreSeconds) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace lockstep
