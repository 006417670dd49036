#include "api/fireworks/resource_names.h"

#include <algorithm>
#include <charconv>

#include "api/errors.h"
#include "api/tinker/wire_fields.h"

namespace lockstep {
namespace {
std::size_t page_number(const ApiRequest& request, const char* name, std::size_t standard) {
  const std::optional<std::string> text = request.query_value(name);
  if (!text || text->empty()) return standard;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) fail_value(name, fmt::format("is '{}', allowed is a whole number", shown(*text)));
  return value;
}
}  // namespace

std::string path_segment(const ApiRequest& request, std::string_view name, std::string_view without) {
  std::string value(request.parameter(name));
  if (without.empty()) return value;
  if (!value.ends_with(without))
    throw RequestError(ErrorCode::not_found, {}, fmt::format("there is no {} here that ends otherwise than with {}", name, without), 404);
  value.resize(value.size() - without.size());
  return value;
}

std::string resource_name(const ApiRequest& request, std::string_view collection, const std::string& id) {
  return fmt::format("accounts/{}/{}/{}", path_segment(request, "account"), collection, id);
}

std::string model_label(const std::string& name) {
  constexpr std::string_view kModels = "/models/";
  const std::size_t at = name.rfind(kModels);
  return name.starts_with("accounts/") && at != std::string::npos ? name.substr(at + kModels.size()) : name;
}

bool query_flag(const ApiRequest& request, std::string_view name) {
  const std::string text = request.query_value(name).value_or("false");
  if (text != "true" && text != "false") fail_value(std::string(name), fmt::format("is '{}', allowed are true and false", shown(text)));
  return text == "true";
}

std::vector<std::string> page_query() { return {"pageSize", "pageToken"}; }

nlohmann::ordered_json page_of(const ApiRequest& request, const char* field, const nlohmann::ordered_json& rows) {
  constexpr std::size_t kMostRows = 1000;
  const std::size_t begin = std::min(page_number(request, "pageToken", 0), rows.size());
  const std::size_t end = std::min(rows.size(), begin + std::clamp<std::size_t>(page_number(request, "pageSize", kMostRows), 1, kMostRows));
  nlohmann::ordered_json page = nlohmann::ordered_json::array();
  for (std::size_t i = begin; i < end; ++i) page.push_back(rows[i]);
  nlohmann::ordered_json json{{field, page}};
  if (end < rows.size()) json["nextPageToken"] = std::to_string(end);
  return json;
}

nlohmann::ordered_json conflict_json(const std::string& message) { return {{"error", {{"code", "ALREADY_EXISTS"}, {"message", message}}}}; }

}  // namespace lockstep
