// Any bytes as an HTTP request: read, or refused with a status, within its limits; the same however the bytes are cut.
// sources: src/http/request_reader.cpp src/api/exchange.cpp src/api/errors.cpp src/api/percent.cpp src/api/routes.cpp src/api/rate_limits.cpp
// sources: src/api/request_pool.cpp src/api/body_budget.cpp src/observe/*.cpp src/api/access.cpp src/api/api_keys.cpp src/api/json_web_token.cpp
#include <cstdint>
#include <string>

#include "api/errors.h"
#include "api/routes.h"
#include "base/log.h"
#include "http/request_reader.h"

using namespace lockstep;

namespace {
constexpr HttpLimits kLimits{.max_header_bytes = 400, .max_headers = 8, .max_target_bytes = 100, .max_body_bytes = 100};

class Nobody : public Responder {
 public:
  void send(ApiResponse response) override {
    if (response.status < 200 || response.status > 599) __builtin_trap();
  }
  void begin_stream(std::string_view) override {}
  void stream(std::string) override {}
  void end_stream() override {}
  void on_abandoned(std::function<void()>) override {}
};

struct Outcome {
  RequestReader::State state;
  int status;
  std::string path, query, body;
  HeaderList headers;
  std::size_t taken;
  bool operator==(const Outcome&) const = default;
};

// The bytes come `piece` at a time, as from a socket.
Outcome read(std::string_view bytes, std::size_t piece, ApiRequest* request = nullptr) {
  RequestReader reader(kLimits);
  std::string input;
  std::size_t taken = 0;
  for (std::size_t at = 0; at < bytes.size() && (reader.state() == RequestReader::State::headers || reader.state() == RequestReader::State::body);
       at += piece) {
    input += bytes.substr(at, piece);
    for (std::size_t used = 1;
         used > 0 && (reader.state() == RequestReader::State::headers || reader.state() == RequestReader::State::body);) {  // it stops behind the headers
      used = reader.feed(input);
      if (used > input.size()) __builtin_trap();
      input.erase(0, used);
      taken += used;
    }
  }
  const ApiRequest& r = reader.request();
  if (reader.state() == RequestReader::State::done &&
      (r.body.size() > kLimits.max_body_bytes || r.headers.size() > kLimits.max_headers || r.path.empty() || !is_request_id(r.request_id)))
    __builtin_trap();
  if (reader.state() == RequestReader::State::refused && (reader.status() < 400 || reader.message().empty())) __builtin_trap();
  const Outcome outcome{reader.state(), reader.status(), r.path, r.query, r.body, r.headers, taken};
  if (request) *request = std::move(reader.request());
  return outcome;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Routes routes = [] {
    set_log_level(LogLevel::off);
    Routes made;
    const auto handler = [](const ApiRequest& r, const std::shared_ptr<Responder>& out) {
      out->send({200, "text/plain", std::string(r.query_value("a").value_or("")), {}});
    };
    made.add({"GET", "/v1/models/{model}", handler});
    made.add({"POST", "/a/{b}/{c...}", handler, false});
    Access access;
    access.loopback = true;
    access.cors_origins = {"https://a.example"};
    ApiKeys keys;
    keys.add("k", "0123456789abcdef");
    access.keys = std::make_shared<const KeyRing>(std::move(keys));
    made.set_access(access);
    return made;
  }();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ApiRequest request;
  const Outcome whole = read(bytes, std::max<std::size_t>(1, size), &request);
  if (size < 2000) {
    for (const std::size_t piece : {1, 7}) {
      const Outcome cut = read(bytes, piece);
      // When a fault is seen depends on the cut, and so does a trailer that is too long; what is read does not.
      const bool too_long = cut.state == RequestReader::State::refused && cut.status == 431;
      if ((whole.state == RequestReader::State::done || cut.state == RequestReader::State::done) && !too_long && !(cut == whole)) __builtin_trap();
    }
  }
  if (whole.state != RequestReader::State::done) return 0;
  const bool refused = routes.examine(request).refusal.has_value();
  (void)refused;
  const_cast<Routes&>(routes).handle(std::move(request), std::make_shared<Nobody>());
  return 0;
}
