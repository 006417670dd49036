// A store in a bucket of S3, or of a server that speaks it: path style, large objects in parts, channels and the lock by conditional writes. The
// usual variables say who asks and where: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "sync/channel.h"
#include "sync/manifest.h"
#include "sync/object_upload.h"
#include "sync/remote_store.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kMostPageBytes = std::uint64_t{16} << 20;  // of a listing: 1000 names
constexpr int kMostPages = 10'000;
constexpr std::int64_t kLeaseSeconds = 900, kRenewSeconds = 60;
constexpr const char* kLock = "lock";

std::int64_t now_seconds() { return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// What stands between <name> and </name>, one after the other.
std::vector<std::string> xml_values(std::string_view text, std::string_view name) {
  const std::string open = fmt::format("<{}>", name), close = fmt::format("</{}>", name);
  std::vector<std::string> values;
  for (std::size_t at = 0; (at = text.find(open, at)) != std::string_view::npos;) {
    at += open.size();
    const std::size_t end = text.find(close, at);
    if (end == std::string_view::npos) break;
    std::string value(text.substr(at, end - at));
    for (const auto& [entity, letter] : {std::pair("&quot;", "\""), {"&#34;", "\""}, {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}})
      for (std::size_t found = 0; (found = value.find(entity, found)) != std::string::npos; ++found)
        value.replace(found, std::char_traits<char>::length(entity), letter);
    values.push_back(std::move(value));
    at = end;
  }
  return values;
}

std::string query_text(std::string_view value) {
  std::string text;
  for (const char c : value)
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~') text += c;
    else text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return text;
}

class S3Store final : public RemoteStore {
 public:
  S3Store(const std::string& label, const std::string& bucket_url, const std::string& prefix, TransferOptions options)
      : RemoteStore(label, prefix.empty() ? bucket_url : bucket_url + "/" + prefix, std::move(options)), bucket_url_(bucket_url), prefix_(prefix) {}

  // A lease: an object `lock` that says until when it is valid. If the server honours conditional writes, only one writer gets it.
  std::unique_ptr<WriteLock> writing() override;

  std::unique_ptr<Writer> write_object() override {
    renew_lease();
    UploadCalls calls;
    calls.put = [this](const std::string& digest, std::string_view bytes) { put(stored_path(StoredKind::object, digest), bytes); };
    calls.begin = [this](const std::string& digest) {
      const HttpAnswer answer = checked("POST", stored_path(StoredKind::object, digest) + "?uploads=", {});
      const auto ids = xml_values(answer.body, "UploadId");
      if (ids.size() != 1) fail(ErrorCode::io, "POST {}/{}?uploads=: the answer names no UploadId", url_, stored_path(StoredKind::object, digest));
      return ids.front();
    };
    calls.part = [this](const std::string& digest, const std::string& upload, int part, std::string_view bytes) {
      renew_lease();
      return checked("PUT", fmt::format("{}?partNumber={}&uploadId={}", stored_path(StoredKind::object, digest), part, query_text(upload)), bytes).etag;
    };
    calls.end = [this](const std::string& digest, const std::string& upload, const std::vector<std::string>& tags) {
      std::string text = "<CompleteMultipartUpload>";
      for (std::size_t i = 0; i < tags.size(); ++i) text += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1, tags[i]);
      text += "</CompleteMultipartUpload>";
      const std::string path = fmt::format("{}?uploadId={}", stored_path(StoredKind::object, digest), query_text(upload));
      const HttpAnswer answer = ask("POST", path, kMostPageBytes, {"Content-Type: application/xml"}, text);
      // 200 may come with an error in it; 404 when a lost answer said that it was done.
      if (answer.status == 404 && answer.retried && size(StoredKind::object, digest)) return;
      if (answer.status != 200 || answer.body.find("<Error>") != std::string::npos) Transfer::fail_with({.method = "POST", .url = url_ + "/" + path}, answer);
    };
    calls.abandon = [this](const std::string& digest, const std::string& upload) {
      ask("DELETE", fmt::format("{}?uploadId={}", stored_path(StoredKind::object, digest), query_text(upload)), kMostPageBytes);
    };
    return std::make_unique<ObjectUpload>(std::move(calls));
  }

  std::string put_manifest(const std::string& text) override {
    renew_lease();
    const std::string digest = sha256_hex(text);
    kill_point("store.manifest");
    put(stored_path(StoredKind::manifest, digest), text);
    return digest;
  }
  void remove(StoredKind kind, const std::string& digest) override {
    renew_lease();
    ask("DELETE", stored_path(kind, digest), kMostPageBytes);
  }
  std::vector<std::string> list(StoredKind kind) const override {
    std::vector<std::string> names;
    for (std::string& name : keys(kind == StoredKind::object ? "objects/" : "manifests/")) {
      if (kind == StoredKind::object) name = name.substr(std::min(name.size(), std::size_t{3}));
      else if (name.ends_with(".json")) name.resize(name.size() - 5);
      if (is_digest(name, 64)) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::vector<std::string> channels() const override { return json_names("channels/", is_channel_name); }
  bool swap_channel(const std::string& name, const std::optional<std::string>& before, const std::string& after) override {
    const auto now = small_with_tag(channel_path(name), kMostChannelBytes);
    if ((now ? std::optional(now->text) : std::nullopt) != before) return false;
    kill_point("store.channel");
    const HttpAnswer answer = put_if(channel_path(name), after, now ? "If-Match: " + now->etag : "If-None-Match: *");
    if (answer.status == 200) return true;
    // An answer that was lost may have been ours.
    return answer.retried && read_channel(name) == after;
  }

  // Not conditional: who else removes it removes the same, and nobody moves a channel that is to go.
  bool remove_channel(const std::string& name, const std::string& before) override {
    if (read_channel(name) != before) return false;
    ask("DELETE", channel_path(name), kMostPageBytes);
    return true;
  }

  std::vector<std::string> records(const std::string& kind) const override {
    record_path(kind, "any");
    return json_names(kind + "/", is_record_name);
  }
  void put_record(const std::string& kind, const std::string& name, const std::string& text) override { put(record_path(kind, name), text); }
  void remove_record(const std::string& kind, const std::string& name) override { ask("DELETE", record_path(kind, name), kMostPageBytes); }

 private:
  friend struct S3Lease;
  void sign(HttpAsk& ask) const override { ask.headers.push_back("x-amz-content-sha256: " + sha256_hex(ask.body)); }
  HttpAnswer checked(const std::string& method, const std::string& path, std::string_view body) const {
    HttpAnswer answer = ask(method, path, kMostPageBytes, {"Content-Type: application/octet-stream"}, body);
    if (answer.status != 200) Transfer::fail_with({.method = method, .url = url_ + "/" + path}, answer);
    return answer;
  }
  void put(const std::string& path, std::string_view body) const { checked("PUT", path, body); }
  HttpAnswer put_if(const std::string& path, std::string_view body, const std::string& condition) const {
    HttpAnswer answer = ask("PUT", path, kMostPageBytes, {condition, "Content-Type: application/json"}, body);
    if (answer.status != 200 && answer.status != 412 && answer.status != 409 && answer.status != 404)
      Transfer::fail_with({.method = "PUT", .url = url_ + "/" + path}, answer);
    return answer;
  }

  // What follows `folder` in the keys that begin with it.
  std::vector<std::string> keys(const std::string& folder) const {
    const std::string prefix = (prefix_.empty() ? "" : prefix_ + "/") + folder;
    std::vector<std::string> names;
    std::string token;
    for (int page = 0; page < kMostPages; ++page) {
      HttpAsk asked{.url = fmt::format("{}?{}list-type=2&prefix={}", bucket_url_, token.empty() ? "" : "continuation-token=" + query_text(token) + "&",
                                       query_text(prefix)),
                    .most_bytes = kMostPageBytes};
      sign(asked);
      const HttpAnswer answer = transfer_.ask(asked);
      if (answer.status != 200) Transfer::fail_with(asked, answer);
      for (const std::string& key : xml_values(answer.body, "Key"))
        if (key.starts_with(prefix)) names.push_back(key.substr(prefix.size()));
      const auto next = xml_values(answer.body, "NextContinuationToken");
      if (next.empty() || next.front() == token) return names;
      token = next.front();
    }
    fail(ErrorCode::resource_exhausted, "'{}' has more than {} pages of names under {}", label_, kMostPages, folder);
  }
  std::vector<std::string> json_names(const std::string& folder, bool (*allowed)(std::string_view)) const {
    std::vector<std::string> names;
    for (std::string& name : keys(folder)) {
      if (!name.ends_with(".json")) continue;
      name.resize(name.size() - 5);
      if (allowed(name)) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string lease_text() const { return nlohmann::json{{"owner", owner_}, {"until", now_seconds() + kLeaseSeconds}}.dump(); }
  void renew_lease() {
    const std::lock_guard lock(lease_mutex_);
    if (!leased_ || now_seconds() - renewed_ < kRenewSeconds) return;
    renewed_ = now_seconds();
    put(kLock, lease_text());
  }
  void release() noexcept {
    try {
      const std::lock_guard lock(lease_mutex_);
      leased_ = false;
      ask("DELETE", kLock, kMostPageBytes);
    } catch (const Error&) {  // it runs out by itself
    }
  }

  const std::string bucket_url_, prefix_;
  const std::string owner_ = hex64(random_seed());
  std::mutex lease_mutex_;
  bool leased_ = false;
  std::int64_t renewed_ = 0;
};

struct S3Lease final : Store::WriteLock {
  explicit S3Lease(S3Store& store) : store(store) {}
  ~S3Lease() override { store.release(); }
  S3Store& store;
};

std::unique_ptr<Store::WriteLock> S3Store::writing() {
  const std::lock_guard lock(lease_mutex_);
  const auto busy = [&](std::int64_t seconds) {
    fail(ErrorCode::resource_exhausted, "another process writes '{}' (its lease ends in {} s, if it was killed); try again later", label_, seconds);
  };
  if (leased_) busy(kLeaseSeconds);
  const auto held = small_with_tag(kLock, kMostChannelBytes);
  if (held) {
    const auto json = read_json_or_null(held->text);
    const std::int64_t until = json.is_object() && json.contains("until") && json["until"].is_number_integer() ? json["until"].get<std::int64_t>() : 0;
    if (until > now_seconds() && until <= now_seconds() + 2 * kLeaseSeconds) busy(until - now_seconds());
  }
  const HttpAnswer answer = put_if(kLock, lease_text(), held ? "If-Match: " + held->etag : "If-None-Match: *");
  const auto now = answer.status == 200 || answer.retried ? small(kLock, kMostChannelBytes) : std::nullopt;
  if (!now || now->find(owner_) == std::string::npos) busy(kLeaseSeconds);
  leased_ = true;
  renewed_ = now_seconds();
  return std::make_unique<S3Lease>(*this);
}

std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) {
      const std::string text = value;
      if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c > '~'; }))
        fail(ErrorCode::invalid_argument, "{} holds a space, a line's end or what is no ASCII", name);
      return text;
    }
  return "";
}
}  // namespace

std::unique_ptr<Store> open_s3_store(const std::string& url, const StoreOptions& options) {
  TransferOptions transfer = transfer_options(options);
  transfer.access_key = variable({"AWS_ACCESS_KEY_ID"});
  transfer.secret_key = variable({"AWS_SECRET_ACCESS_KEY"});
  transfer.session_token = variable({"AWS_SESSION_TOKEN"});
  transfer.region = variable({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (transfer.region.empty()) transfer.region = "us-east-1";
  if (!std::all_of(transfer.region.begin(), transfer.region.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }))
    fail(ErrorCode::invalid_argument, "AWS_REGION is '{}', allowed are small letters, digits and '-'", transfer.region.substr(0, 40));
  if (transfer.access_key.empty() || transfer.secret_key.empty())
    fail(ErrorCode::invalid_argument, "the store is '{}', and AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is not set; both are needed", url);
  std::string endpoint = variable({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (endpoint.empty()) endpoint = "https://s3." + transfer.region + ".amazonaws.com";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!(endpoint.starts_with("http://") || endpoint.starts_with("https://")) || endpoint.find_first_of("@?#") != std::string::npos)
    fail(ErrorCode::invalid_argument, "AWS_ENDPOINT_URL is no http://HOST or https://HOST without user, password, '?' and '#'");
  const std::string rest = url.substr(5);  // s3://
  const std::size_t slash = rest.find('/');
  const std::string bucket = rest.substr(0, slash), prefix = slash == std::string::npos ? "" : rest.substr(slash + 1);
  return std::make_unique<S3Store>(url, endpoint + "/" + bucket, prefix, std::move(transfer));
}

}  // namespace lockstep
