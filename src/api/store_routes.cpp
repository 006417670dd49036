#include "api/store_routes.h"

#include <algorithm>
#include <charconv>

#include "api/errors.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_file.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kMostListed = 100'000;

// Whether a part of a path begins with no dot, so that it is neither a hidden file nor "..".
bool is_plain_part(std::string_view part) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !part.empty() && part.size() <= 160 && plain(part[0]) &&
         std::all_of(part.begin(), part.end(), [&](char c) { return plain(c) || c == '-' || c == '_' || c == '.' || c == '~'; });
}

// objects/ab/NAME, or KIND/NAME.json, or KIND/ for a list.
fs::path path_in_store(const fs::path& folder, std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, slash - at));
    at = slash + 1;
  }
  const bool list = parts.size() == 2 && parts[1].empty();
  const bool fits = parts[0] == "objects" ? parts.size() == 3 && !list : parts.size() == 2 && (list || parts[1].ends_with(".json"));
  if (list) parts.pop_back();
  if (!fits || !std::all_of(parts.begin(), parts.end(), is_plain_part)) throw RequestError(ErrorCode::not_found, "path", "the store has no such file");
  fs::path found = folder;
  for (const std::string_view part : parts) found /= part;
  return found;
}

ApiResponse listing(const fs::path& folder) {
  ApiResponse response;
  response.content_type = "text/plain; charset=utf-8";
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && names.size() < kMostListed; entry.increment(error))
    if (std::string name = entry->path().filename().string(); is_plain_part(name) && name.ends_with(".json")) names.push_back(std::move(name));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) response.body += name + "\n";
  return response;
}

// "bytes=A-B"; others are answered as if none had been asked for, as HTTP allows.
std::optional<std::pair<std::uint64_t, std::uint64_t>> range_of(std::string_view text) {
  constexpr std::string_view kUnit = "bytes=";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  std::uint64_t begin = 0, last = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, begin);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  if (first.ptr + 1 == end) return std::pair(begin, UINT64_MAX);
  const auto second = std::from_chars(first.ptr + 1, end, last);
  if (second.ec != std::errc() || second.ptr != end || last < begin) return std::nullopt;
  return std::pair(begin, last);
}

ApiResponse store_file(const fs::path& path, const ApiRequest& request) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) throw RequestError(ErrorCode::not_found, "path", "the store has no such file");
  const auto file = MappedFile::open(path);  // safe: a store replaces files as a whole and never changes one
  const std::string_view bytes = file->bytes();
  ApiResponse response;
  const bool record = path.extension() == ".json";
  response.content_type = record ? "application/json" : "application/octet-stream";
  // Objects and manifests have their SHA-256 as names; records are short.
  const std::string tag = "\"" + (record ? hex64(xxh3(bytes.data(), bytes.size())) : path.filename().string()) + "\"";
  response.headers = {{"ETag", tag}, {"Accept-Ranges", "bytes"}, {"Cache-Control", "no-cache"}, {"X-Content-Type-Options", "nosniff"}};
  if (request.header("if-none-match") == tag) {
    response.status = 304;
    return response;
  }
  response.static_body = bytes;
  response.owner = file;
  if (const auto range = range_of(request.header("range"))) {
    if (range->first >= bytes.size()) {
      response = {};
      response.status = 416;
      response.headers = {{"Content-Range", fmt::format("bytes */{}", bytes.size())}};
      return response;
    }
    const std::uint64_t last = std::min<std::uint64_t>(range->second, bytes.size() - 1);
    response.status = 206;
    response.static_body = bytes.substr(range->first, last - range->first + 1);
    response.headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", range->first, last, bytes.size()));
  }
  return response;
}
}  // namespace

void add_store_routes(Routes& routes, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder / "manifests", error))
    fail(ErrorCode::not_found, "'{}' is no store of snapshots; `lockstep snapshot push FOLDER {}` makes one", folder.string(), folder.string());
  routes.add({.method = "GET", .path = "/store/{file...}", .handler = [folder](const ApiRequest& request, const std::shared_ptr<Responder>& responder) {
                const std::string_view path = request.parameter("file");
                const fs::path found = path_in_store(folder, path);
                responder->send(path.ends_with('/') ? listing(found) : store_file(found, request));
              }});
}

}  // namespace lockstep
