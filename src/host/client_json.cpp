#include "host/client_json.h"

#include "base/bounded_json.h"
#include "base/json_members.h"

namespace lockstep {

ClientJson::ClientJson(const nlohmann::ordered_json& value)
    : text_(std::make_shared<const std::string>(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))) {}

const std::shared_ptr<const std::string>& ClientJson::empty() {
  static const auto text = std::make_shared<const std::string>("{}");
  return text;
}

nlohmann::ordered_json ClientJson::value() const { return read_own_json(*text_); }

bool ClientJson::has_members_of(const nlohmann::ordered_json& wanted) const {
  if (wanted.empty()) return true;
  const nlohmann::ordered_json all = value();
  if (!all.is_object()) return false;
  const JsonMembers members(all);
  for (const auto& one : wanted.get_ref<const nlohmann::ordered_json::object_t&>()) {
    const nlohmann::ordered_json* its = members.find(one.first);
    if (!its || *its != one.second) return false;
  }
  return true;
}

}  // namespace lockstep
