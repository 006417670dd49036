// Python's dict: values by key, in order of insertion.
//   dict.set(Value::text("role"), role); const Value* v = dict.find("role");
// One rendering, one thread.
#pragma once
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace lockstep::jinja {

class Dict {
 public:
  void set(const Value& key, Value value);  // invalid_argument for a key without a hash
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  void clear() {
    entries_.clear();
    index_.clear();
  }

 private:
  const std::pair<Value, Value>* locate(const Value& key) const;
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash -> entry, once there are several
};

}  // namespace lockstep::jinja
