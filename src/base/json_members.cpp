#include "base/json_members.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

JsonMembers::JsonMembers(const Json& object) {
  for (const auto& member : object.get_ref<const Json::object_t&>()) values_.emplace(member.first, &member.second);
}

const Json* JsonMembers::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : found->second;
}

Json members_of_both(const Json& object, const Json& over) {
  const JsonMembers known(object), last(over);
  Json both = Json::object();
  both.get_ref<Json::object_t&>().reserve(object.size() + over.size());
  for (const auto& member : object.get_ref<const Json::object_t&>()) {
    const Json* other = last.find(member.first);
    add_member(both, member.first, other ? *other : member.second);
  }
  for (const auto& member : over.get_ref<const Json::object_t&>())
    if (!known.find(member.first)) add_member(both, member.first, member.second);
  return both;
}

void add_member(Json& object, const std::string& name, const Json& value) { object.get_ref<Json::object_t&>().emplace_back(name, value); }

}  // namespace lockstep
