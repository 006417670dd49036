// The fields of all three wires that are accepted without effect, each with its reason. docs/fields.md shows the same list; a test compares the two.
// Every other field of a request has an effect or is refused. Constant table; any thread.
//   harmless_reason("user")
#pragma once
#include <span>
#include <string_view>

namespace lockstep {

struct HarmlessField {
  std::string_view name, reason;
};
std::span<const HarmlessField> harmless_fields();
// "" for a field that is not in the list.
std::string_view harmless_reason(std::string_view name);

}  // namespace lockstep
