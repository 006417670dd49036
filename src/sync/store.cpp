#include "sync/store.h"

#include <algorithm>

#include "base/error.h"
#include "sync/folder_store.h"

namespace lockstep {

bool is_record_kind(std::string_view kind) {
  constexpr std::string_view kTaken[] = {"objects", "manifests", "channels"};
  return !kind.empty() && kind.size() <= 32 && std::all_of(kind.begin(), kind.end(), [](char c) { return c >= 'a' && c <= 'z'; }) &&
         std::find(std::begin(kTaken), std::end(kTaken), kind) == std::end(kTaken);
}

bool is_record_name(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 128 && plain(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '-' || c == '_' || c == '.'; });
}

std::unique_ptr<Store> open_store(const std::string& place, bool create) {
  if (place.find("://") != std::string::npos)
    fail(ErrorCode::unsupported, "the store is '{}', allowed is a folder; stores over HTTP and S3 are not there yet",
         place.substr(0, place.find("://") + 3) + "...");
  return open_folder_store(place, create);
}

}  // namespace lockstep
