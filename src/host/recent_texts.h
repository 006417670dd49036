// Short texts by (scope, number), the newest of each owner: which request a number stands for, why a model could not be made. A list that
// would grow for ever forgets its oldest instead: an owner beyond its share its own, all together beyond the limit the oldest there is. Not
// for what must be known: who asks for a number that was forgotten is told that it is not known. One thread at a time.
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

  // Null: none of that owner's.
  const std::string* find(const std::string& owner, const std::string& scope, std::int64_t number) const;
  // One that is there is replaced, and counts as new.
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
