#include "sync/transfer.h"

#include <curl/curl.h>
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "base/ascii.h"
#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kMostErrorBytes = 64 << 10;  // of an answer that is none of ours
constexpr int kMostRedirects = 3;
constexpr int kReceivedBytes = 512 << 10;  // that wait in the kernel, of a transfer: a kill loses them

bool worth_another_try(int status) { return status == 408 || status == 429 || status >= 500; }

std::uint64_t number_at(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The word of an S3 server's XML, or of what another says in JSON: letters alone, since it is a stranger's text.
std::string error_word(std::string_view body) {
  const std::size_t at = body.find("<Code>");
  if (at == std::string_view::npos) return "";
  std::string word(body.substr(at + 6, std::min<std::size_t>(body.find('<', at + 6) - at - 6, 60)));
  std::erase_if(word, [](char c) { return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')); });
  return word;
}
}  // namespace

// One request on one connection. What a callback throws is kept: it may not pass through libcurl.
struct Transfer::Try {
  const HttpAsk& ask;
  const Sink* sink = nullptr;  // of the bytes that were asked for; otherwise they become the answer's body
  std::uint64_t skip = 0, wanted = 0, taken = 0;
  bool ranged = false;  // the range was asked for
  HttpAnswer answer = {};
  std::uint64_t range_begin = 0;
  bool has_range = false, no_ranges = false, complete = false;
  std::string_view unsent = {};
  std::exception_ptr thrown = {};
  CURLcode code = CURLE_OK;
  std::string what = {};

  void header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // another answer: after a redirect, or after 100
      answer = {};
      has_range = false;
      const std::size_t space = line.find(' ');
      answer.status = space == std::string_view::npos ? 0 : static_cast<int>(number_at(line.substr(space + 1)));
      return;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string name = ascii_lower(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "etag") answer.etag = value.substr(0, 200);
    if (name == "accept-ranges") answer.ranges = value == "bytes";
    if (name == "content-length") {
      answer.length = number_at(value);
      answer.has_length = true;
    }
    if (name == "content-range" && value.starts_with("bytes ")) {
      has_range = true;
      range_begin = number_at(value.substr(6));
    }
  }

  // False ends the transfer.
  bool data(std::string_view bytes) {
    if (!sink || (answer.status != 200 && answer.status != 206)) {
      const std::uint64_t most = sink || answer.status >= 300 ? kMostErrorBytes : ask.most_bytes;
      if (answer.body.size() + bytes.size() > most) {
        if (answer.status >= 300) return true;  // enough of it is kept
        fail(ErrorCode::corrupt_file, "{} {}: the answer has more than {} bytes", ask.method, ask.url, most);
      }
      answer.body += bytes;
      return true;
    }
    // Some servers send 200 with a Content-Range.
    if (ranged && !has_range && !(skip == 0 && answer.has_length && answer.length == wanted)) {
      no_ranges = true;
      return false;
    }
    if (ranged && has_range && range_begin != skip)
      fail(ErrorCode::corrupt_file, "{} {}: bytes from {} on were asked for, and the server sent those from {} on", ask.method, ask.url, skip, range_begin);
    if (!ranged && skip > 0) {
      const std::size_t past = static_cast<std::size_t>(std::min<std::uint64_t>(skip, bytes.size()));
      skip -= past;
      bytes.remove_prefix(past);
    }
    if (complete) return false;
    bytes = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), wanted - taken)));
    if (!bytes.empty()) (*sink)(bytes);
    taken += bytes.size();
    complete = taken == wanted;
    return ranged || !complete;  // a range ends here by itself, and its connection serves the next
  }
};

struct Transfer::Connections {
  std::mutex mutex;
  std::vector<CURL*> idle;

  CURL* take() {
    static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (once != CURLE_OK) fail(ErrorCode::internal, "libcurl does not start: {}", curl_easy_strerror(once));
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        CURL* const one = idle.back();
        idle.pop_back();
        return one;
      }
    }
    CURL* const one = curl_easy_init();
    if (!one) fail(ErrorCode::resource_exhausted, "libcurl gives no connection");
    return one;
  }
  void give(CURL* one) {
    curl_easy_reset(one);  // connections stay
    const std::lock_guard lock(mutex);
    idle.push_back(one);
  }
  ~Connections() {
    for (CURL* one : idle) curl_easy_cleanup(one);
  }
};

namespace {
template <class F>
std::size_t guarded_callback(std::exception_ptr& thrown, std::size_t bytes, const F& work) {
  try {
    return work() ? bytes : 0;
  } catch (...) {
    thrown = std::current_exception();
    return 0;
  }
}
}  // namespace

Transfer::Transfer(TransferOptions options) : options_(std::move(options)), connections_(std::make_unique<Connections>()) {}
Transfer::~Transfer() = default;

void Transfer::perform(Try& attempt) const {
  CURL* const curl = connections_->take();
  struct GiveBack {
    Connections& connections;
    CURL* curl;
    curl_slist* headers = nullptr;
    ~GiveBack() {
      curl_slist_free_all(headers);
      connections.give(curl);
    }
  } held{*connections_, curl};
  const HttpAsk& ask = attempt.ask;
  const auto header = [&](const std::string& line) { held.headers = curl_slist_append(held.headers, line.c_str()); };
  for (const std::string& line : ask.headers) header(line);
  // Not beside a signature: libcurl 7.88 signs a header without a value that it does not send.
  if (options_.access_key.empty()) header("Expect:");
  if (!options_.bearer.empty()) header("Authorization: Bearer " + options_.bearer);
  if (!options_.session_token.empty()) header("x-amz-security-token: " + options_.session_token);
  if (attempt.ranged) header(fmt::format("Range: bytes={}-{}", attempt.skip, attempt.skip + attempt.wanted - 1));
  const std::string user = options_.access_key + ":" + options_.secret_key, signature = "aws:amz:" + options_.region + ":s3";
  if (!options_.access_key.empty()) {
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, signature.c_str());
    curl_easy_setopt(curl, CURLOPT_USERPWD, user.c_str());
  }
  char said[CURL_ERROR_SIZE] = "";
  attempt.unsent = ask.body;
  curl_easy_setopt(curl, CURLOPT_URL, ask.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, held.headers);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, said);
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  // A signed request is one for its host alone.
  if (options_.access_key.empty()) {
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, static_cast<long>(kMostRedirects));
  }
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_seconds * 1000));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(options_.stall_seconds)));
  if (ask.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  } else if (ask.method == "PUT") {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(ask.body.size()));
  } else if (ask.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(ask.body.size()));
  } else if (ask.method != "GET") {
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, ask.method.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_READDATA, &attempt);
  curl_easy_setopt(
      curl, CURLOPT_READFUNCTION, +[](char* to, std::size_t size, std::size_t count, void* at) -> std::size_t {
        std::string_view& rest = static_cast<Try*>(at)->unsent;
        const std::size_t bytes = rest.copy(to, size * count);
        rest.remove_prefix(bytes);
        return bytes;
      });
  curl_easy_setopt(curl, CURLOPT_SEEKDATA, &attempt);
  curl_easy_setopt(
      curl, CURLOPT_SEEKFUNCTION, +[](void* at, curl_off_t offset, int origin) -> int {
        Try& one = *static_cast<Try*>(at);
        if (origin != SEEK_SET || offset < 0 || static_cast<std::size_t>(offset) > one.ask.body.size()) return CURL_SEEKFUNC_FAIL;
        one.unsent = one.ask.body.substr(static_cast<std::size_t>(offset));
        return CURL_SEEKFUNC_OK;
      });
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &attempt);
  curl_easy_setopt(
      curl, CURLOPT_HEADERFUNCTION, +[](char* bytes, std::size_t size, std::size_t count, void* at) -> std::size_t {
        Try& one = *static_cast<Try*>(at);
        return guarded_callback(one.thrown, size * count, [&] { return one.header({bytes, size * count}), true; });
      });
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &attempt);
  curl_easy_setopt(
      curl, CURLOPT_WRITEFUNCTION, +[](char* bytes, std::size_t size, std::size_t count, void* at) -> std::size_t {
        Try& one = *static_cast<Try*>(at);
        return guarded_callback(one.thrown, size * count, [&] { return one.data({bytes, size * count}); });
      });
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &options_.stop);
  curl_easy_setopt(
      curl, CURLOPT_XFERINFOFUNCTION,
      +[](void* at, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int { return static_cast<const StopToken*>(at)->stopped() ? 1 : 0; });
  curl_easy_setopt(
      curl, CURLOPT_SOCKOPTFUNCTION, +[](void*, curl_socket_t socket, curlsocktype) -> int {
        setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kReceivedBytes, sizeof kReceivedBytes);
        return CURL_SOCKOPT_OK;
      });
  attempt.code = curl_easy_perform(curl);
  options_.stop.throw_if_stopped();
  if (attempt.thrown) std::rethrow_exception(attempt.thrown);
  if (attempt.code != CURLE_OK) attempt.what = *said ? said : curl_easy_strerror(attempt.code);
}

void Transfer::wait(int tried) const {
  using namespace std::chrono;
  const auto until = steady_clock::now() + duration<double>(options_.first_wait_seconds * static_cast<double>(1 << std::min(tried, 6)));
  while (steady_clock::now() < until) {
    options_.stop.throw_if_stopped();
    std::this_thread::sleep_for(milliseconds(20));
  }
}

HttpAnswer Transfer::ask(const HttpAsk& ask) const {
  for (int tried = 0;; ++tried) {
    Try attempt{ask};
    perform(attempt);
    attempt.answer.retried = tried > 0;
    const bool last = tried + 1 >= options_.tries;
    if (attempt.code == CURLE_OK && (last || !worth_another_try(attempt.answer.status))) return attempt.answer;
    if (attempt.code != CURLE_OK && last) fail(ErrorCode::io, "{} {}: {} ({} tries)", ask.method, ask.url, attempt.what, options_.tries);
    wait(tried);
  }
}

void Transfer::fail_with(const HttpAsk& ask, const HttpAnswer& answer) {
  const std::string word = error_word(answer.body);
  std::string help;
  if (answer.status == 401 || answer.status == 403)
    help = "; keys of S3 are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, that of an HTTP store from LOCKSTEP_STORE_KEY";
  fail(answer.status == 404 ? ErrorCode::not_found : ErrorCode::io, "{} {}: status {}{}{}", ask.method, ask.url, answer.status,
       word.empty() ? "" : " (" + word + ")", help);
}

bool Transfer::pieces(const std::string& url, std::uint64_t offset, std::uint64_t bytes, const Sink& sink, bool with_ranges) const {
  HttpAsk ask{.url = url};
  if (!options_.access_key.empty()) ask.headers.push_back("x-amz-content-sha256: UNSIGNED-PAYLOAD");
  std::uint64_t done = 0;
  for (int tried = 0; done < bytes;) {
    Try attempt{ask, &sink, offset + done, bytes - done, 0, with_ranges};
    perform(attempt);
    if (attempt.no_ranges) return false;
    done += attempt.taken;
    if (done == bytes) break;
    if (attempt.taken > 0) tried = 0;
    if (attempt.taken > 0 && attempt.code == CURLE_OK) continue;  // a server may send a part of what was asked for
    const int status = attempt.answer.status;
    if (attempt.code == CURLE_OK && status != 200 && status != 206 && !worth_another_try(status)) {
      if (status == 416) fail(ErrorCode::corrupt_file, "GET {}: the server has fewer than {} bytes (status 416)", url, offset + bytes);
      fail_with(ask, attempt.answer);
    }
    if (++tried >= options_.tries) {
      if (attempt.code == CURLE_OK && status < 300)
        fail(ErrorCode::corrupt_file, "GET {}: the server ends after {} bytes, {} are needed ({} tries)", url, offset + done, offset + bytes, options_.tries);
      if (attempt.code == CURLE_OK) fail_with(ask, attempt.answer);
      fail(ErrorCode::io, "GET {}: {}, after {} of {} bytes ({} tries without one more)", url, attempt.what, done, bytes, options_.tries);
    }
    wait(tried - 1);
  }
  return true;
}

bool Transfer::range(const std::string& url, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const {
  return pieces(url, offset, bytes, sink, true);
}
void Transfer::whole(const std::string& url, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const { pieces(url, offset, bytes, sink, false); }

}  // namespace lockstep
