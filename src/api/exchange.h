// A request and its answer as an API sees them: method, path, headers, body; a status and bytes. Knows no socket: http/ implements Responder and
// calls Api, and tests do the same without a network. Plain values; thread rules are at the functions.
//   api.handle(request, responder);  ...  responder->send({200, "application/json", body});
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class BodyLease;

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct ApiRequest {
  std::string method;        // "GET"
  std::string path;          // "/v1/models", without the query; as it came: percent-encoded
  std::string query;         // behind '?', as it came
  std::string content_type;  // as it came, or empty
  std::string body;
  HeaderList headers;                // names in lower case, in order; values as they came, without the spaces around them
  HeaderList parameters;             // of the path's braces, percent-decoded: set by Routes
  std::string request_id;            // of the client (X-Request-Id, when it is harmless) or of http/; never empty behind http/
  std::string key_name;              // the name of its API key's owner: set by Routes; empty: the server asks for no key
  std::string owner;                 // the name under which limits count it (owner_of, api/access.h): set by Routes
  std::shared_ptr<BodyLease> lease;  // of the memory that its body takes (api/body_budget.h); null: it is not counted

  bool from_this_machine = false;  // its connection comes from this machine: set by http/

  // The first header of that name (in lower case), or "".
  std::string_view header(std::string_view name) const;
  // A parameter of the route's path; "" when the route has none of that name.
  std::string_view parameter(std::string_view name) const;
  // The first ?name=value, percent-decoded ('+' is a space); "" for ?name. Nothing when it is not there.
  // Throws RequestError (api/errors.h) when it is not percent-encoded UTF-8.
  std::optional<std::string> query_value(std::string_view name) const;
  // RequestError for a ?name of the query that is not in `known`, since it would have no effect.
  void check_query(const std::vector<std::string>& known) const;
};

struct ApiResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HeaderList headers;                 // besides what http/ adds; no user data
  std::string_view static_body;       // when not empty: sent instead of body, and not copied
  std::shared_ptr<const void> owner;  // of static_body's bytes; null: they live as long as the program
  std::string_view bytes() const { return static_body.empty() ? std::string_view(body) : static_body; }
};

// The answer to one request: send() once, or begin_stream(), stream() any number of times, end_stream(). Any thread, one at a
// time; none of them blocks. Calls after the client has gone have no effect.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void send(ApiResponse response) = 0;
  virtual void begin_stream(std::string_view content_type) = 0;
  virtual void stream(std::string data) = 0;
  virtual void end_stream() = 0;
  // `callback` is called once, on any thread, when nobody waits for the answer any more (the client has gone, or the server stops), at once
  // if that has happened already. It is not called after the answer's end.
  virtual void on_abandoned(std::function<void()> callback) = 0;
  // Whether the answer was abandoned because the server stops; its client may still read what is sent.
  virtual bool abandoned_by_server() const { return false; }
  // Bytes of the stream that the client has not taken yet. A caller that makes data faster than clients read may wait for it to shrink;
  // a stream that grows past the server's limit is closed, and the callback of on_abandoned is called.
  virtual std::size_t pending_bytes() const { return 0; }
};

// What an Api tells of a request by its headers alone.
struct Examination {
  std::string route = "other";         // for logs and counters: of a small fixed set, never the client's text
  std::string key_name, owner;         // as ApiRequest's
  HeaderList headers;                  // for every answer to this request, http/'s own and streams too
  std::optional<ApiResponse> refusal;  // the answer, if the headers decide it (no such route, no key, ...): the body need not be read
  bool while_draining = false;         // answered even by a server that takes no new work
  int draining_status = 503;           // else the status with which such a server refuses it
};

class Api {
 public:
  virtual ~Api() = default;
  // Answers now or later; throws nothing. Any thread.
  virtual void handle(ApiRequest request, std::shared_ptr<Responder> responder) = 0;
  // The answer, in this API's format, to a fault that http/ finds itself (a malformed request, a limit).
  virtual ApiResponse error_response(int status, std::string_view message) const = 0;
  // Called once a request, before its body is read. handle() makes the same checks, for callers that did not call this.
  virtual Examination examine(const ApiRequest& head) const { return {}; }
};

}  // namespace lockstep
