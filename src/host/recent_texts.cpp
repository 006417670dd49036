#include "host/recent_texts.h"

#include <limits>

namespace lockstep {

const std::string* RecentTexts::find(const std::string& owner, const std::string& scope, std::int64_t number) const {
  const auto found = texts_.find({scope, number});
  return found == texts_.end() || found->second.owner->first != owner ? nullptr : &found->second.text;
}

void RecentTexts::put(const std::string& owner, const std::string& scope, std::int64_t number, std::string text) {
  erase(scope, number);
  if (const auto own = own_.find(owner); own != own_.end() && static_cast<std::int64_t>(own->second.size()) >= limit_.share()) remove(own->second.front());
  if (size() >= limit_.most()) remove(all_.front());
  const auto own = own_.try_emplace(owner).first;
  const auto at = texts_.emplace(Key(scope, number), Text{std::move(text), own, {}, {}}).first;
  at->second.among_all = all_.insert(all_.end(), at);
  at->second.among_own = own->second.insert(own->second.end(), at);
}

void RecentTexts::erase(const std::string& scope, std::int64_t number) {
  if (const auto found = texts_.find({scope, number}); found != texts_.end()) remove(found);
}

void RecentTexts::forget(const std::string& scope) {
  for (auto at = texts_.lower_bound({scope, std::numeric_limits<std::int64_t>::min()}); at != texts_.end() && at->first.first == scope;) remove(at++);
}

void RecentTexts::remove(Texts::iterator at) {
  const auto owner = at->second.owner;
  all_.erase(at->second.among_all);
  owner->second.erase(at->second.among_own);
  texts_.erase(at);
  if (owner->second.empty()) own_.erase(owner);
}

}  // namespace lockstep
