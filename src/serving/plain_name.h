// Checks names that clients choose, which become parts of paths and URLs. Pure.
//   check_plain_name("path", request.name);
#pragma once
#include <string>

namespace lockstep {

// 1 to 128 letters, digits, '-', '_' and '.', the first of them no '.'. Error invalid_argument, with `what` it is the name of.
void check_plain_name(const std::string& what, const std::string& name);

// A name as messages show it: at most 80 bytes, and no character that would end or disturb them.
std::string shown_name(const std::string& name);

}  // namespace lockstep
