#include "parity/score_input.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {

namespace {
using Value = nlohmann::json;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

// At most 60 characters of a value, for messages.
std::string shown(const Value& value) {
  const std::string text = value.dump(-1, ' ', false, Value::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

void read_numbers(const Value& list, std::vector<double>& numbers, const std::string& name, const std::string& place, bool nested = false) {
  for (const Value& value : list) {
    if (value.is_array() && !nested) read_numbers(value, numbers, name, place, true);
    else if (value.is_number()) numbers.push_back(value.get<double>());
    else fail(ErrorCode::corrupt_file, "{}: {}[{}] is {}, allowed are numbers", place, name, numbers.size(), shown(value));
  }
}

TokenLine read_line(std::string_view text, const TokenBounds& bounds, const std::string& place) {
  Value line;
  try {
    line = Value::parse(text);
  } catch (const Value::exception&) {
    fail(ErrorCode::corrupt_file, "{}: this is not JSON; a line is {{\"tokens\": [1, 2, 3]}}", place);
  }
  if (!line.is_object()) fail(ErrorCode::corrupt_file, "{}: the line is {}, allowed is {{\"tokens\": [1, 2, 3]}}", place, shown(line));
  std::vector<std::string> allowed = bounds.columns;
  allowed.insert(allowed.begin(), "tokens");
  TokenLine read;
  for (const auto& [key, value] : line.items()) {
    if (key == "tokens") continue;
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end())
      fail(ErrorCode::corrupt_file, "{}: the key is {}, allowed is \"{}\"{}", place, shown(Value(key)), fmt::join(allowed, "\", \""),
           did_you_mean(key, allowed));
    if (!value.is_array()) fail(ErrorCode::corrupt_file, "{}: {} is {}, allowed is a list of numbers", place, key, shown(value));
    read_numbers(value, read.columns[key], key, place);
  }
  if (!line.contains("tokens")) fail(ErrorCode::corrupt_file, "{}: the key \"tokens\" is missing", place);
  const Value& list = line["tokens"];
  if (!list.is_array()) fail(ErrorCode::corrupt_file, "{}: tokens is {}, allowed is a list of token ids", place, shown(list));
  const auto count = static_cast<std::int64_t>(list.size());
  if (count < bounds.shortest || count > bounds.longest)
    fail(ErrorCode::corrupt_file, "{}: tokens has {} entries, allowed are {} to {}", place, count, bounds.shortest, bounds.longest);
  std::vector<std::int32_t>& tokens = read.tokens;
  tokens.reserve(list.size());
  for (const Value& id : list) {
    const bool fits = id.is_number_integer() && (!id.is_number_unsigned() || id.get<std::uint64_t>() < std::uint64_t{1} << 31) && id.get<std::int64_t>() >= 0 &&
                      id.get<std::int64_t>() < bounds.vocabulary;
    if (!fits)
      fail(ErrorCode::corrupt_file, "{}: tokens[{}] is {}, allowed are token ids from 0 to {}", place, tokens.size(), shown(id), bounds.vocabulary - 1);
    tokens.push_back(id.get<std::int32_t>());
  }
  return read;
}
}  // namespace

std::vector<TokenLine> parse_token_lines(std::string_view text, std::string_view label, const TokenBounds& bounds) {
  std::vector<TokenLine> lines;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    lines.push_back(read_line(line, bounds, fmt::format("'{}' line {}", label, number)));
    lines.back().line = number;
  }
  if (lines.empty()) fail(ErrorCode::corrupt_file, "'{}' holds no sequence; a line is {{\"tokens\": [1, 2, 3]}}", label);
  return lines;
}

std::vector<TokenLine> read_token_lines(const std::filesystem::path& path, const TokenBounds& bounds) {
  return parse_token_lines(read_file(path, kMostBytes), path.string(), bounds);
}

}  // namespace lockstep
