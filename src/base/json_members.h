// Members of JSON objects that may have thousands: an ordered_json has them in a row and compares a name with each, so that a look-up a member takes
// the square. These take n log n. Pure functions; JsonMembers refers to the object it was made of.
//   const JsonMembers members(object); const nlohmann::ordered_json* value = members.find("name");
//   const nlohmann::ordered_json both = members_of_both(standard, given);
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep {

class JsonMembers {
 public:
  explicit JsonMembers(const nlohmann::ordered_json& object);
  // Null: there is none.
  const nlohmann::ordered_json* find(std::string_view name) const;

 private:
  std::map<std::string_view, const nlohmann::ordered_json*> values_;
};

// Of a name that both objects have, the value of `over`, in the place of the other.
nlohmann::ordered_json members_of_both(const nlohmann::ordered_json& object, const nlohmann::ordered_json& over);
// Adds a member whose name the object does not have.
void add_member(nlohmann::ordered_json& object, const std::string& name, const nlohmann::ordered_json& value);

}  // namespace lockstep
