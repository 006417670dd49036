#include "serving/plain_name.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace lockstep {

void check_plain_name(const std::string& what, const std::string& name) {
  constexpr std::size_t kLongest = 128;
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.'; };
  if (!name.empty() && name.size() <= kLongest && name[0] != '.' && std::all_of(name.begin(), name.end(), plain)) return;
  fail(ErrorCode::invalid_argument, "{} is '{}', allowed is a name of 1 to {} letters, digits, '-', '_' and '.', which does not begin with '.'", what,
       shown_name(name), kLongest);
}

std::string shown_name(const std::string& name) {
  std::string shown = name.substr(0, 80);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
  return shown;
}

}  // namespace lockstep
