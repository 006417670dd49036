#include "cli/option.h"

namespace lockstep {

std::string shortened(const std::string& text) { return text.size() > 60 ? text.substr(0, 60) + "..." : text; }

Option& Option::required() {
  is_required = true;
  return *this;
}

Option& Option::command_line_only() {
  file_key = false;
  return *this;
}

Option& Option::or_alone(std::string value) {
  alone = std::move(value);
  placeholder = "[" + placeholder + "]";
  return *this;
}

Option& Option::positional() {
  is_positional = true;
  file_key = false;
  placeholder.clear();
  return *this;
}

void Option::assign(const std::string& shown, const std::string& value) {
  try {
    read(value);
  } catch (const UsageError& allowed) {
    throw UsageError(fmt::format("{} is '{}', {}", shown, shortened(value), allowed.message()));
  }
  given = true;
}

}  // namespace lockstep
