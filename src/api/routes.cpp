#include "api/routes.h"

#include <algorithm>

#include "api/errors.h"
#include "api/percent.h"

namespace lockstep {
namespace {
std::vector<std::string_view> segments_of(std::string_view path) {
  std::vector<std::string_view> segments;
  while (!path.empty()) {
    path.remove_prefix(1);  // '/'
    segments.push_back(path.substr(0, path.find('/')));
    path.remove_prefix(segments.back().size());
  }
  return segments;
}

bool is_parameter(std::string_view segment) { return segment.size() > 2 && segment.front() == '{' && segment.back() == '}'; }
bool is_rest(std::string_view segment) { return is_parameter(segment) && segment.ends_with("...}"); }
std::string parameter_name(std::string_view segment) {
  segment = segment.substr(1, segment.size() - 2);
  if (segment.ends_with("...")) segment.remove_suffix(3);
  return std::string(segment);
}

// The parameters of a path that matches a row; empty optional: it does not match.
std::optional<HeaderList> match(const std::vector<std::string>& row, const std::vector<std::string_view>& path, std::string_view whole) {
  HeaderList parameters;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i >= path.size()) return std::nullopt;
    if (is_rest(row[i])) {
      parameters.emplace_back(parameter_name(row[i]), whole.substr(static_cast<std::size_t>(path[i].data() - whole.data())));
      return parameters;
    }
    if (is_parameter(row[i])) {
      if (path[i].empty()) return std::nullopt;
      parameters.emplace_back(parameter_name(row[i]), path[i]);
    } else if (row[i] != path[i]) {
      return std::nullopt;
    }
  }
  if (path.size() != row.size()) return std::nullopt;
  return parameters;
}

}  // namespace

void Routes::add(Route route) {
  if (route.path.empty() || route.path.front() != '/') fail(ErrorCode::invalid_argument, "the route '{}' does not begin with a slash", route.path);
  Row row;
  for (const std::string_view segment : segments_of(route.path)) row.segments.emplace_back(segment);
  for (std::size_t i = 0; i < row.segments.size(); ++i) {
    row.has_parameters = row.has_parameters || is_parameter(row.segments[i]);
    if (is_rest(row.segments[i]) && i + 1 < row.segments.size())
      fail(ErrorCode::invalid_argument, "in the route '{}' something follows {}", route.path, row.segments[i]);
  }
  for (const Row& other : rows_)
    if (other.route.method == route.method && other.route.path == route.path)
      fail(ErrorCode::already_exists, "the route {} {} is there twice", route.method, route.path);
  row.route = std::move(route);
  rows_.push_back(std::move(row));
}

void Routes::set_access(Access access) {
  access.check();
  access_ = std::move(access);
}

Routes::Found Routes::find(const ApiRequest& request) const {
  Found found;
  if (request.path.empty() || request.path.front() != '/') return found;
  const std::vector<std::string_view> path = segments_of(request.path);
  const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  for (const bool with_parameters : {false, true}) {
    for (const Row& row : rows_) {
      if (row.has_parameters != with_parameters) continue;
      auto parameters = match(row.segments, path, request.path);
      if (!parameters) continue;
      found.methods.push_back(row.route.method);
      if (row.route.method != method || found.row) continue;
      found.row = &row;
      found.parameters = std::move(*parameters);
    }
    if (!found.methods.empty()) break;  // a row with exactly this path hides those with parameters
  }
  return found;
}

std::vector<std::string> Routes::known_paths() const {
  std::vector<std::string> paths;
  for (const Row& row : rows_)
    if (std::find(paths.begin(), paths.end(), row.route.path) == paths.end()) paths.push_back(row.route.path);
  return paths;
}

ApiResponse Routes::answer_without_row(const ApiRequest& request, const Found& found) const {
  if (found.methods.empty()) {
    const std::vector<std::string> paths = known_paths();
    return lockstep::error_response(
        RequestError(ErrorCode::not_found, {},
                     fmt::format("there is no {}{}; known are {}", shown(request.path), did_you_mean(shown(request.path), paths), fmt::join(paths, ", "))));
  }
  std::vector<std::string> allowed;
  for (const std::string& method : found.methods) {
    if (std::find(allowed.begin(), allowed.end(), method) == allowed.end()) allowed.push_back(method);
    if (method == "GET") allowed.emplace_back("HEAD");
  }
  const std::string list = fmt::format("{}", fmt::join(allowed, ", "));
  if (access_.is_preflight(request)) return access_.preflight(request, list);
  ApiResponse response;
  if (request.method == "OPTIONS") response.status = 204;
  else
    response = lockstep::error_response(RequestError(ErrorCode::invalid_argument, {},
                                                     fmt::format("{} is not offered on {}, allowed is {}", shown(request.method), shown(request.path), list),
                                                     405, "method_not_allowed"));
  response.headers.emplace_back("Allow", list);
  return response;
}

std::optional<ApiResponse> Routes::refusal(const ApiRequest& request, const Found& found, std::string* key_name) const {
  if (auto refused = access_.refuse_site(request)) return refused;
  if (!found.row) return answer_without_row(request, found);
  if (found.row->route.needs_key) return access_.refuse_key(request, key_name);
  return std::nullopt;
}

Examination Routes::examine(const ApiRequest& head) const {
  Examination examination;
  const Found found = find(head);
  if (found.row) {
    examination.route = found.row->route.path;
    examination.while_draining = found.row->route.while_draining;
    examination.draining_status = found.row->route.draining_status;
  }
  examination.refusal = refusal(head, found, &examination.key_name);
  examination.owner = owner_of(head, examination.key_name);
  examination.headers = access_.answer_headers(head);
  if (!examination.refusal && is_rated(found)) {
    examination.refusal = access_.rates->refusal(examination.key_name);
    for (auto& header : access_.rates->headers(examination.key_name)) examination.headers.push_back(std::move(header));
  }
  return examination;
}

void Routes::handle(ApiRequest request, std::shared_ptr<Responder> responder) {
  try {
    Found found = find(request);
    if (auto refused = refusal(request, found, &request.key_name)) return responder->send(std::move(*refused));
    if (is_rated(found))
      if (auto refused = access_.rates->take(request.key_name)) return responder->send(std::move(*refused));
    request.owner = owner_of(request, request.key_name);
    for (auto& [name, value] : found.parameters) {
      auto decoded = percent_decode(value);
      if (!decoded) throw RequestError(ErrorCode::invalid_argument, name, fmt::format("{} in the path is not percent-encoded UTF-8 without NUL", name));
      request.parameters.emplace_back(name, std::move(*decoded));
    }
    if (found.row->route.query) request.check_query(*found.row->route.query);
    found.row->route.handler(request, responder);
  } catch (const std::exception& e) {
    responder->send(lockstep::error_response(e));
  }
}

ApiResponse Routes::error_response(int status, std::string_view message) const { return error_response_of(status, message); }

}  // namespace lockstep
