// HTTP requests by libcurl for stores behind a server. Each has limits on bytes and time and is repeated where that can help; errors name the URL,
// and never contain credentials. Knows no store. Any thread; connections are reused and shared.
//   const Transfer transfer({});   const HttpAnswer answer = transfer.ask({.url = "http://host/store/channels/chat.json", .most_bytes = 4096});
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/stop_token.h"

namespace lockstep {

struct TransferOptions {
  std::string bearer;  // sent as `Authorization: Bearer ...` to the first host alone
  // AWS's signature, version 4.
  std::string access_key, secret_key, session_token, region;
  // Limits. A transfer slower than 1000 bytes a second for stall_seconds is dropped.
  double connect_seconds = 15, stall_seconds = 30;
  int tries = 6;  // in a row without a new byte; waits 0.2, 0.4, ... seconds between them
  double first_wait_seconds = 0.2;
  StopToken stop = {};
};

struct HttpAsk {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers = {};  // "Name: value"
  std::string_view body = {};             // of a PUT or a POST
  std::uint64_t most_bytes = 0;           // of the answer
};

struct HttpAnswer {
  int status = 0;
  std::string body, etag;
  std::uint64_t length = 0;  // Content-Length, which a HEAD's answer has too
  bool has_length = false, ranges = false;
  bool retried = false;  // an earlier try may have been carried out, its answer lost
};

class Transfer {
 public:
  explicit Transfer(TransferOptions options);
  ~Transfer();
  // Returns the first answer that is not worth another try (408, 429, and 500 and above are retried). Errors: io; corrupt_file for more bytes than
  // allowed.
  HttpAnswer ask(const HttpAsk& ask) const;

  // Passes bytes [offset, offset + bytes) of a URL to `sink` as they arrive, in order, each once; resumes where a broken transfer ended. False: the
  // server does not support ranges, and nothing was passed; call whole() instead. Errors: not_found; io; corrupt_file if there are fewer bytes; what
  // sink throws.
  using Sink = std::function<void(std::string_view bytes)>;
  bool range(const std::string& url, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const;
  // The same from a server without ranges: the first `offset` bytes are transferred too, and dropped.
  void whole(const std::string& url, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const;

  // "GET http://host/x: status 403 (AccessDenied)".
  [[noreturn]] static void fail_with(const HttpAsk& ask, const HttpAnswer& answer);

 private:
  struct Try;
  struct Connections;
  void perform(Try& attempt) const;
  void wait(int tried) const;
  bool pieces(const std::string& url, std::uint64_t offset, std::uint64_t bytes, const Sink& sink, bool with_ranges) const;
  TransferOptions options_;
  std::unique_ptr<Connections> connections_;
};

}  // namespace lockstep
