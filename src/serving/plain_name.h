// Checks names that clients choose, which become parts of paths and URLs. Pure.
//   check_plain_name("path", request.name);
#pragma once
#include <string>

namespace lockstep {

// Allowed: 1 to 128 letters, digits, '-', '_' and '.', the first no '.'. Error invalid_argument; `what` is the thing it names.
void check_plain_name(const std::string& what, const std::string& name);

// A name for messages: at most 80 bytes, control characters shown as '?'.
std::string shown_name(const std::string& name);

}  // namespace lockstep
