// Recognises repeated calls. A client whose answer was lost sends the call again with the same number, and gets the same request id instead of a second
// request. The newest numbers are remembered (host/recent_texts.h). Scopes: a model, a sampler, "create SESSION", "loss SESSION". Under a lock of
// its own. Any thread.
//   const auto [request, is_new] = numbers.find_or(owner, "create " + session, 3, [&] { return futures.create(owner, id); });
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "base/guarded.h"
#include "host/recent_texts.h"

namespace lockstep {

class RequestNumbers {
 public:
  explicit RequestNumbers(const KeyLimit& limit) : texts_(std::in_place, limit) {}

  std::optional<std::string> find(const std::string& owner, const std::string& scope, std::int64_t number) const {
    const auto texts = texts_.lock();
    const std::string* text = texts->find(owner, scope, number);
    return text ? std::optional(*text) : std::nullopt;
  }
  void put(const std::string& owner, const std::string& scope, std::int64_t number, std::string text) {
    const auto texts = texts_.lock();
    texts->put(owner, scope, number, std::move(text));
  }
  // Returns the number's request id; if it has none, stores the result of `make` (true). Of several callers only one makes it. If `make` throws, the number
  // stays free.
  template <class Make>
  std::pair<std::string, bool> find_or(const std::string& owner, const std::string& scope, std::int64_t number, const Make& make) {
    const auto texts = texts_.lock();
    if (const std::string* text = texts->find(owner, scope, number)) return {*text, false};
    std::string made = make();
    texts->put(owner, scope, number, made);
    return {std::move(made), true};
  }
  void erase(const std::string& scope, std::int64_t number) {
    const auto texts = texts_.lock();
    texts->erase(scope, number);
  }
  void forget(const std::string& scope) {
    const auto texts = texts_.lock();
    texts->forget(scope);
  }

 private:
  Guarded<RecentTexts> texts_;
};

}  // namespace lockstep
