#include "sync/remote_store.h"

#include "base/error.h"
#include "sync/channel.h"
#include "sync/manifest.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostKnown = 1000;  // texts whose ETags are kept
}

std::string stored_path(StoredKind kind, const std::string& digest) {
  if (!is_digest(digest, 64)) fail(ErrorCode::internal, "'{}' is no digest", digest);
  return kind == StoredKind::object ? "objects/" + digest.substr(0, 2) + "/" + digest : "manifests/" + digest + ".json";
}

std::string channel_path(const std::string& name) {
  if (!is_channel_name(name))
    fail(ErrorCode::invalid_argument, "the channel's name is '{}', allowed are 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first", name);
  return "channels/" + name + ".json";
}

std::string record_path(const std::string& kind, const std::string& name) {
  if (!is_record_kind(kind) || !is_record_name(name)) fail(ErrorCode::internal, "'{}' of '{}' is no name of a record", name, kind);
  return kind + "/" + name + ".json";
}

TransferOptions transfer_options(const StoreOptions& options) {
  TransferOptions transfer;
  transfer.stall_seconds = options.stall_seconds;
  transfer.connect_seconds = std::min(transfer.connect_seconds, options.stall_seconds);
  transfer.tries = options.tries;
  transfer.first_wait_seconds = options.first_wait_seconds;
  transfer.stop = options.stop;
  return transfer;
}

HttpAnswer RemoteStore::ask(const std::string& method, const std::string& path, std::uint64_t most_bytes, std::vector<std::string> headers,
                            std::string_view body) const {
  HttpAsk ask{method, url_ + "/" + path, std::move(headers), body, most_bytes};
  sign(ask);
  HttpAnswer answer = transfer_.ask(ask);
  const int status = answer.status;
  if ((status < 200 || status >= 300) && status != 304 && status != 404 && status != 409 && status != 412) Transfer::fail_with(ask, answer);
  return answer;
}

std::optional<std::uint64_t> RemoteStore::size(StoredKind kind, const std::string& digest) const {
  const std::string path = stored_path(kind, digest);
  const HttpAnswer answer = ask("HEAD", path, 0);
  if (answer.status == 404) return std::nullopt;
  if (!answer.has_length) fail(ErrorCode::io, "HEAD {}/{}: the server says no Content-Length", url_, path);
  return answer.length;
}

void RemoteStore::stream(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const {
  if (bytes == 0) return;
  const std::string url = url_ + "/" + stored_path(kind, digest);
  if (ranges_ != Ranges::refused && transfer_.range(url, offset, bytes, sink)) {
    if (offset > 0) ranges_ = Ranges::given;  // from the first byte on, an answer with the whole object looks the same
    return;
  }
  ranges_ = Ranges::refused;
  transfer_.whole(url, offset, bytes, sink);
}

std::string RemoteStore::read(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes) const {
  std::string text;  // grows with what comes, not with what a stranger's text says
  stream(kind, digest, offset, bytes, [&](std::string_view piece) { text += piece; });
  return text;
}

std::optional<RemoteStore::Small> RemoteStore::small_with_tag(const std::string& path, std::uint64_t most_bytes) const {
  Small known;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(path); found != known_.end()) known = found->second;
  }
  std::vector<std::string> headers;
  if (!known.etag.empty()) headers.push_back("If-None-Match: " + known.etag);
  HttpAnswer answer = ask("GET", path, most_bytes, std::move(headers));
  if (answer.status == 304 && !known.etag.empty()) return known;
  const std::lock_guard lock(mutex_);
  known_.erase(path);
  if (answer.status == 404) return std::nullopt;
  if (answer.status != 200) Transfer::fail_with({.url = url_ + "/" + path}, answer);
  Small now{std::move(answer.body), std::move(answer.etag)};
  if (!now.etag.empty() && known_.size() < kMostKnown) known_[path] = now;
  return now;
}

std::optional<std::string> RemoteStore::small(const std::string& path, std::uint64_t most_bytes) const {
  auto found = small_with_tag(path, most_bytes);
  return found ? std::optional(std::move(found->text)) : std::nullopt;
}

}  // namespace lockstep
