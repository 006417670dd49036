#include "text/template/dict.h"

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/comparison.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {

void Dict::set(const Value& key, Value value) {
  if (!hashable(key)) fail(ErrorCode::invalid_argument, "unhashable type: '{}'", type_name(key));
  if (auto* entry = const_cast<std::pair<Value, Value>*>(locate(key))) {
    entry->second = std::move(value);
    return;
  }
  constexpr std::size_t kSmall = 8;
  entries_.emplace_back(key, std::move(value));
  if (entries_.size() == kSmall + 1)
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash(entries_[i].first), i);
  else if (entries_.size() > kSmall) index_.emplace(hash(key), entries_.size() - 1);
}

const std::pair<Value, Value>* Dict::locate(const Value& key) const {
  if (index_.empty()) {
    for (const auto& entry : entries_)
      if (same_or_equal(entry.first, key)) return &entry;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash(key));
  for (auto it = begin; it != end; ++it) {
    const auto& entry = entries_[it->second];
    if (same_or_equal(entry.first, key)) return &entry;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (!hashable(key)) fail(ErrorCode::invalid_argument, "unhashable type: '{}'", type_name(key));
  const auto* entry = locate(key);
  return entry ? &entry->second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  RenderBudget::search(key.size());
  if (index_.empty()) {
    for (const auto& [name, value] : entries_)
      if (name.is(Kind::text) && name.text().bytes() == key) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    const auto& [name, value] = entries_[it->second];
    if (name.is(Kind::text) && name.text().bytes() == key) return &value;
  }
  return nullptr;
}

}  // namespace lockstep::jinja
