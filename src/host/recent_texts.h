// A bounded map from (scope, number) to a short text: which request id a number got, or why a model could not be made. When an owner has more than
// its share, the oldest of that owner is dropped; when all together have too many, the oldest of all. A number that was dropped counts as unknown, so
// it is not for facts that must not be lost. One thread at a time.
//   RecentTexts requests(KeyLimit(100'000, 50)); requests.put(owner, model, 7, request); requests.find(owner, model, 7)
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "host/key_limit.h"

namespace lockstep {

class RecentTexts {
 public:
  explicit RecentTexts(const KeyLimit& limit) : limit_(limit) {}
  RecentTexts(const RecentTexts&) = delete;
  RecentTexts& operator=(const RecentTexts&) = delete;

  // Null: that owner has none.
  const std::string* find(const std::string& owner, const std::string& scope, std::int64_t number) const;
  // Replaces an existing one, which then counts as new.
  void put(const std::string& owner, const std::string& scope, std::int64_t number, std::string text);
  void erase(const std::string& scope, std::int64_t number);
  void forget(const std::string& scope);
  std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }

 private:
  struct Text;
  using Key = std::pair<std::string, std::int64_t>;
  using Texts = std::map<Key, Text>;
  using Order = std::list<Texts::iterator>;  // oldest first
  struct Text {
    std::string text;
    std::map<std::string, Order>::iterator owner;
    Order::iterator among_all, among_own;
  };
  void remove(Texts::iterator at);

  const KeyLimit limit_;
  Texts texts_;
  Order all_;
  std::map<std::string, Order> own_;
};

}  // namespace lockstep
