#include "service/score_input.h"

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

std::vector<std::int32_t> read_line(std::string_view text, const TokenBounds& bounds, const std::string& place) {
  Value line;
  try {
    line = Value::parse(text);
  } catch (const Value::exception&) {
    fail(ErrorCode::corrupt_file, "{}: this is not JSON; a line is {{\"tokens\": [1, 2, 3]}}", place);
  }
  if (!line.is_object())
    fail(ErrorCode::corrupt_file, "{}: the line is {}, allowed is {{\"tokens\": [1, 2, 3]}}", place, shown(line));
  for (const auto& [key, value] : line.items())
    if (key != "tokens")
      fail(ErrorCode::corrupt_file, "{}: the key is {}, allowed is \"tokens\"{}", place, shown(Value(key)),
           did_you_mean(key, {"tokens"}));
  if (!line.contains("tokens")) fail(ErrorCode::corrupt_file, "{}: the key \"tokens\" is missing", place);
  const Value& list = line["tokens"];
  if (!list.is_array())
    fail(ErrorCode::corrupt_file, "{}: tokens is {}, allowed is a list of token ids", place, shown(list));
  const auto count = static_cast<std::int64_t>(list.size());
  if (count < bounds.shortest || count > bounds.longest)
    fail(ErrorCode::corrupt_file, "{}: tokens has {} entries, allowed are {} to {}", place, count, bounds.shortest,
         bounds.longest);
  std::vector<std::int32_t> tokens;
  tokens.reserve(list.size());
  for (const Value& id : list) {
    const bool fits = id.is_number_integer() &&
                      (!id.is_number_unsigned() || id.get<std::uint64_t>() < std::uint64_t{1} << 31) &&
                      id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() < bounds.vocabulary;
    if (!fits)
      fail(ErrorCode::corrupt_file, "{}: tokens[{}] is {}, allowed are token ids from 0 to {}", place, tokens.size(),
           shown(id), bounds.vocabulary - 1);
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}
}  // namespace

std::vector<TokenLine> parse_token_lines(std::string_view text, std::string_view label, const TokenBounds& bounds) {
  std::vector<TokenLine> lines;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    lines.push_back({number, read_line(line, bounds, fmt::format("'{}' line {}", label, number))});
  }
  if (lines.empty())
    fail(ErrorCode::corrupt_file, "'{}' holds no sequence; a line is {{\"tokens\": [1, 2, 3]}}", label);
  return lines;
}

std::vector<TokenLine> read_token_lines(const std::filesystem::path& path, const TokenBounds& bounds) {
  return parse_token_lines(read_file(path, kMostBytes), path.string(), bounds);
}

}  // namespace lockstep
