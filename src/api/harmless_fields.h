// The fields of all three wires that may be given and change nothing, each with its reason: docs/fields.md shows the same list, and a test
// holds the two together. Every other field of a request is honoured or refused. Constant table; any thread.
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
