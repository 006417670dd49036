// A read-only store on any HTTP file server, into whose folder the server's owner writes. LOCKSTEP_STORE_KEY is sent as a bearer token; a store that
// `lockstep serve --store` serves needs one of that server's API keys there.
#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "sync/channel.h"
#include "sync/manifest.h"
#include "sync/read_alone.h"
#include "sync/remote_store.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kMostListingBytes = std::uint64_t{64} << 20;

class HttpStore final : public ReadAlone<RemoteStore> {
 public:
  HttpStore(const std::string& url, TransferOptions options) : ReadAlone(url, url, std::move(options)) {}

  std::vector<std::string> list(StoredKind kind) const override {
    if (kind == StoredKind::object) fail(ErrorCode::unsupported, "objects of '{}' are not listed: it is read over HTTP", label_);
    auto names = listing("manifests/");
    std::erase_if(names, [](const std::string& name) { return !is_digest(name, 64); });
    return names;
  }
  std::vector<std::string> channels() const override {
    auto names = listing("channels/");
    std::erase_if(names, [](const std::string& name) { return !is_channel_name(name); });
    return names;
  }
  std::vector<std::string> records(const std::string& kind) const override {
    record_path(kind, "any");
    auto names = listing(kind + "/", true);
    std::erase_if(names, [](const std::string& name) { return !is_record_name(name); });
    return names;
  }

 private:
  [[noreturn]] void refuse() const override {
    fail(ErrorCode::unsupported, "'{}' is read alone; write into the folder that this server gives out, or into s3://BUCKET/PREFIX", label_);
  }
  // NAMEs of NAME.json in whatever form a server lists a folder: HTML, JSON or plain lines. `may_lack`: a folder that is not there has none.
  std::vector<std::string> listing(const std::string& folder, bool may_lack = false) const {
    const HttpAnswer answer = ask("GET", folder, kMostListingBytes);
    if (may_lack && answer.status == 404) return {};
    if (answer.status != 200)
      fail(ErrorCode::unsupported, "GET {}/{}: status {}; the server lists no folders, so name a channel or a whole id", url_, folder, answer.status);
    const auto in_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~';
    };
    std::vector<std::string> names;
    constexpr std::string_view kEnding = ".json";
    for (std::size_t at = 0; at < answer.body.size();) {
      std::size_t end = at;
      while (end < answer.body.size() && in_name(answer.body[end])) ++end;
      const std::string_view word = std::string_view(answer.body).substr(at, end - at);
      if (word.ends_with(kEnding)) names.emplace_back(word.substr(0, word.size() - kEnding.size()));
      at = end + 1;
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }
};
}  // namespace

std::unique_ptr<Store> open_http_store(const std::string& url, const StoreOptions& options) {
  TransferOptions transfer = transfer_options(options);
  if (const char* key = std::getenv("LOCKSTEP_STORE_KEY")) transfer.bearer = key;
  if (std::any_of(transfer.bearer.begin(), transfer.bearer.end(), [](char c) { return c <= ' ' || c > '~'; }))
    fail(ErrorCode::invalid_argument, "LOCKSTEP_STORE_KEY holds what is no key: a space, a line's end or no ASCII");
  return std::make_unique<HttpStore>(url, std::move(transfer));
}

}  // namespace lockstep
