#include "api/exchange.h"

#include <algorithm>

#include "api/errors.h"
#include "api/percent.h"

namespace lockstep {
namespace {
std::string_view value_of(const HeaderList& list, std::string_view name) {
  for (const auto& [key, value] : list)
    if (key == name) return value;
  return {};
}

// Takes the first name=value from `rest`.
std::pair<std::string_view, std::string_view> next_pair(std::string_view& rest) {
  const std::string_view field = rest.substr(0, rest.find('&'));
  rest.remove_prefix(std::min(rest.size(), field.size() + 1));
  const std::size_t equals = std::min(field.find('='), field.size());
  return {field.substr(0, equals), field.substr(std::min(field.size(), equals + 1))};
}
}  // namespace

std::string_view ApiRequest::header(std::string_view name) const { return value_of(headers, name); }
std::string_view ApiRequest::parameter(std::string_view name) const { return value_of(parameters, name); }

std::optional<std::string> ApiRequest::query_value(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    const auto [key, value] = next_pair(rest);
    const auto decoded = percent_decode(key, true);
    if (!decoded || *decoded != name) continue;
    auto text = percent_decode(value, true);
    if (!text)
      throw RequestError(ErrorCode::invalid_argument, std::string(name), fmt::format("{} in the query is not percent-encoded UTF-8 without NUL", name));
    return text;
  }
  return std::nullopt;
}

void ApiRequest::check_query(const std::vector<std::string>& known) const {
  for (std::string_view rest = query; !rest.empty();) {
    const std::string_view key = next_pair(rest).first;
    if (key.empty()) continue;  // "a=1&&b=2"
    const auto decoded = percent_decode(key, true);
    const std::string name = shown(decoded ? *decoded : std::string(key));
    if (decoded && std::find(known.begin(), known.end(), *decoded) != known.end()) continue;
    throw RequestError(ErrorCode::invalid_argument, name,
                       fmt::format("unknown query parameter '{}'{}; allowed {}", name, did_you_mean(name, known),
                                   known.empty() ? "is none" : fmt::format("{} {}", known.size() == 1 ? "is" : "are", fmt::join(known, ", "))));
  }
}

}  // namespace lockstep
