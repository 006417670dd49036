#include "text/grammar/formats.h"

#include <fmt/format.h>

#include "text/grammar/pattern.h"

namespace lockstep {

namespace {
std::string date_pattern() {
  // A year that ends in 00 is a leap year where 400 divides it; year 0000 is none.
  const std::string year = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
  const std::string leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
  return fmt::format(
      "(?:{0}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-"
      "9]|2[0-8]))|{1}-02-29)",
      year, leap);
}

std::string time_pattern() { return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"; }

std::string pattern_of(std::string_view name) {
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?";
  const std::string hostname = fmt::format("{0}(?:\\.{0}){{0,3}}", label);
  if (name == "date") return date_pattern();
  if (name == "time") return time_pattern();
  if (name == "date-time") return date_pattern() + "T" + time_pattern();
  if (name == "duration")
    return "P(?:[0-9]{1,4}W|[0-9]{1,4}D|(?:[0-9]{1,4}D)?T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:["
           "0-9]{1,4}S)?|[0-9]{1,4}S))";
  if (name == "uuid") return "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  if (name == "email") return fmt::format("[a-zA-Z0-9_+-]{{1,32}}(?:\\.[a-zA-Z0-9_+-]{{1,32}})?@{0}(?:\\.{0}){{0,2}}\\.[a-zA-Z]{{2,10}}", label);
  if (name == "hostname") return hostname;
  if (name == "ipv4") return fmt::format("{0}(?:\\.{0}){{3}}", octet);
  if (name == "ipv6") {
    const std::string group = "[0-9a-fA-F]{1,4}";
    std::string text = fmt::format("(?:{0}:){{7}}{0}", group);
    for (int before = 0; before <= 6; ++before) {  // "::" stands for at least two groups
      const std::string front = before == 0 ? "" : fmt::format("{0}(?::{0}){{{1}}}", group, before - 1);
      const int most = 6 - before;
      text += fmt::format("|{}::{}", front, most == 0 ? "" : fmt::format("(?:{0}(?::{0}){{0,{1}}})?", group, most - 1));
    }
    return "(?:" + text + ")";
  }
  if (name == "uri")
    return fmt::format(
        "https?://{}(?::[1-9][0-9]{{0,3}})?(?:/[a-zA-Z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?"
        "(?:#[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?",
        hostname);
  if (name == "json-pointer") return "(?:/(?:[^/~]|~[01])*)*";
  return "";
}
}  // namespace

const std::vector<std::string>& format_names() {
  static const std::vector<std::string> names{"date-time", "date", "time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri", "json-pointer"};
  return names;
}

std::optional<TextDfa> format_dfa(std::string_view name, SchemaWork& work) {
  const std::string pattern = pattern_of(name);
  if (pattern.empty()) return std::nullopt;
  return pattern_dfa("^" + pattern + "$", work);
}

}  // namespace lockstep
