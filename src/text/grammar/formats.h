// The supported string formats of JSON Schema, as automata. Each is a subset that every reader of the format
// accepts: date (RFC 3339, real days of years 0001 to 9999), time and date-time (seconds 00 to 59, fraction of 1 to 6
// digits, Z or an offset), duration (ISO 8601 weeks, or days with hours, minutes, seconds), uuid, email and hostname
// (ASCII), ipv4, ipv6 (eight groups, or :: and fewer), uri (http or https), json-pointer. Thread-safe (pure functions).
//   if (const std::optional<TextDfa> dfa = format_dfa("date", work)) ...
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/text_dfa.h"

namespace lockstep {

std::optional<TextDfa> format_dfa(std::string_view name, SchemaWork& work);
const std::vector<std::string>& format_names();

}  // namespace lockstep
