// Of which class of work the requests of an API key are (base/fair_shares.h): live, but where the key's line in the key file says rollouts. Any thread.
//   KeyClasses classes; classes.set({{"trainer", WorkClass::rollouts}}); if (classes.of("trainer") == WorkClass::rollouts) return;
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "base/fair_shares.h"

namespace lockstep {

class KeyClasses {
 public:
  // Of the keys that are known by name; instead of those before.
  void set(std::map<std::string, WorkClass> classes) {
    const std::lock_guard lock(mutex_);
    classes_ = std::move(classes);
  }
  WorkClass of(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto its = classes_.find(key);
    return its == classes_.end() ? WorkClass::live : its->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, WorkClass> classes_;
};

}  // namespace lockstep
