#include "api/exchange.h"

#include "api/errors.h"
#include "api/percent.h"

namespace lockstep {
namespace {
std::string_view value_of(const HeaderList& list, std::string_view name) {
  for (const auto& [key, value] : list)
    if (key == name) return value;
  return {};
}
}  // namespace

std::string_view ApiRequest::header(std::string_view name) const { return value_of(headers, name); }
std::string_view ApiRequest::parameter(std::string_view name) const { return value_of(parameters, name); }

std::optional<std::string> ApiRequest::query_value(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    const std::string_view field = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    const std::size_t equals = std::min(field.find('='), field.size());
    const auto key = percent_decode(field.substr(0, equals), true);
    if (!key || *key != name) continue;
    auto value = percent_decode(field.substr(std::min(field.size(), equals + 1)), true);
    if (!value)
      throw RequestError(ErrorCode::invalid_argument, std::string(name),
                         fmt::format("{} in the query is not percent-encoded UTF-8 without NUL", name));
    return value;
  }
  return std::nullopt;
}

}  // namespace lockstep
