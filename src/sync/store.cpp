#include "sync/store.h"

#include <algorithm>

#include "base/error.h"
#include "sync/folder_store.h"
#include "sync/remote_store.h"

namespace lockstep {

bool is_record_kind(std::string_view kind) {
  constexpr std::string_view kTaken[] = {"objects", "manifests", "channels"};
  return !kind.empty() && kind.size() <= 32 && std::all_of(kind.begin(), kind.end(), [](char c) { return c >= 'a' && c <= 'z'; }) &&
         std::find(std::begin(kTaken), std::end(kTaken), kind) == std::end(kTaken);
}

bool is_record_name(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 130 && plain(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '-' || c == '_' || c == '.' || c == '~'; });
}

std::unique_ptr<Store> open_store(const std::string& place, bool create, const StoreOptions& options) {
  const std::size_t scheme_end = place.find("://");
  if (scheme_end == std::string::npos) return open_folder_store(place, create);
  const std::string scheme = place.substr(0, scheme_end);
  if (scheme != "http" && scheme != "https" && scheme != "s3")
    fail(ErrorCode::unsupported, "the store begins with '{}://', allowed are a folder, http://, https:// and s3://", scheme.substr(0, 20));
  // Nothing of it is shown: it may hold a password.
  if (place.find_first_of("@?#\\") != std::string::npos)
    fail(ErrorCode::invalid_argument,
         "the store's URL has a '@', '?', '#' or '\\'; keys stand in variables: LOCKSTEP_STORE_KEY, AWS_ACCESS_KEY_ID and "
         "AWS_SECRET_ACCESS_KEY");
  std::string url = place;
  while (url.ends_with('/')) url.pop_back();
  const auto harmless = [](char c) { return is_record_name(std::string_view(&c, 1)) || std::string_view("-_.~%:/[]").find(c) != std::string_view::npos; };
  if (url.size() > 2000 || url.size() <= scheme_end + 3 || url[scheme_end + 3] == '/' || !std::all_of(url.begin(), url.end(), harmless) ||
      url.find("/..") != std::string::npos)
    fail(ErrorCode::invalid_argument, "the store is '{}', allowed is {}://{} of letters, digits and -_.~%", url.substr(0, 200), scheme,
         scheme == "s3" ? "BUCKET/PREFIX" : "HOST/PATH");
  if (scheme != "s3") return open_http_store(url, options);
  if (url.find_first_of("%:[", scheme_end + 3) != std::string::npos)
    fail(ErrorCode::invalid_argument, "the store is '{}', allowed is s3://BUCKET/PREFIX of letters, digits and -_.~", url.substr(0, 200));
  return open_s3_store(url, options);
}

}  // namespace lockstep
