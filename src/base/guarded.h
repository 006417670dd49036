// A value that can be reached only while its lock is held, so that nobody can forget to take it.
//   Guarded<std::map<std::string, int>> counts;
//   const auto held = counts.lock();   // others wait until it goes
//   (*held)["a"] = 1; held->size();
// The lock must be held in a named variable (`counts.lock()->size()` does not compile): a loop over the value of a temporary would outlive the lock.
#pragma once
#include <mutex>
#include <optional>
#include <utility>

namespace lockstep {

template <class T>
class Guarded {
 public:
  // The value, and its lock for as long as this lives.
  template <class Value>
  class Held {
   public:
    Value& operator*() const& { return *value_; }
    Value* operator->() const& { return value_; }
    Value& operator*() const&& = delete;
    Value* operator->() const&& = delete;

   private:
    friend class Guarded;
    Held(std::unique_lock<std::mutex> lock, Value& value) : lock_(std::move(lock)), value_(&value) {}
    std::unique_lock<std::mutex> lock_;
    Value* value_;
  };

  Guarded() : value_() {}
  template <class... Arguments>
  explicit Guarded(std::in_place_t, Arguments&&... arguments) : value_(std::forward<Arguments>(arguments)...) {}
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  Held<T> lock() { return {std::unique_lock(mutex_), value_}; }
  Held<const T> lock() const { return {std::unique_lock(mutex_), value_}; }
  // Nothing while another holds it.
  std::optional<Held<T>> try_lock() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return std::nullopt;
    return Held<T>(std::move(lock), value_);
  }

 private:
  mutable std::mutex mutex_;
  T value_;
};

}  // namespace lockstep
