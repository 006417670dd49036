// An Api made of rows {method, path, handler}: finds a request's row, answers 404 with "did you mean" and 405 with Allow, answers HEAD as GET, and
// OPTIONS, and turns a handler's exception into an answer. Knows no socket. Rows are added before a server uses it; then any thread may call the
// rest.
//   Routes routes; routes.add({"GET", "/v1/models/{model}", [](const ApiRequest& r, const auto& out) { answer(r.parameter("model"), out); }});
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "api/access.h"
#include "api/exchange.h"
#include "api/request_pool.h"

namespace lockstep {

struct Route {
  std::string method;  // "GET", "POST", ...
  // "/v1/models/{model}": a segment in braces is a parameter and matches one segment that is not empty; "{file...}" as the last matches the
  // rest of the path, slashes too. A row without parameters wins over one with.
  std::string path;
  // Answers now or later; an exception of it becomes the answer (api/errors.h). It may move the request's body away.
  std::function<void(ApiRequest&, const std::shared_ptr<Responder>&)> handler;
  bool needs_key = true;        // a key is required, if the server has keys
  bool while_draining = false;  // answered while the server takes no new work
  // The names of ?name=value that the handler reads; others are refused, since they would have no effect. Empty optional: the handler checks
  // them itself, or takes any.
  std::optional<std::vector<std::string>> query = std::vector<std::string>{};
  int draining_status = 503;  // of a server that takes no new work; 425: for clients that repeat the request and may reach another server
  bool rated = true;          // a POST counts against its key's rate limit; false for polls of clients that wait
};

class Routes : public Api {
 public:
  // Error already_exists: there is a row of that method and path.
  void add(Route route);
  // Without it every request is allowed. Error invalid_argument as Access::check.
  void set_access(Access access);

  void handle(ApiRequest request, std::shared_ptr<Responder> responder) override;
  ApiResponse error_response(int status, std::string_view message) const override;
  Examination examine(const ApiRequest& head) const override;
  // Threads for handlers whose work takes too long for the server's own thread; they end before the handlers are destroyed.
  RequestLanes& lanes() const { return *lanes_; }

 private:
  struct Row {
    Route route;
    std::vector<std::string> segments;  // of the path
    bool has_parameters = false;
  };
  struct Found {
    const Row* row = nullptr;  // null: there is none of that path and method
    HeaderList parameters;
    std::vector<std::string> methods;  // that the path has
  };
  Found find(const ApiRequest& request) const;
  std::vector<std::string> known_paths() const;
  ApiResponse answer_without_row(const ApiRequest& request, const Found& found) const;
  std::optional<ApiResponse> refusal(const ApiRequest& request, const Found& found, std::string* key_name) const;
  bool is_rated(const Found& found) const { return access_.rates && found.row && found.row->route.rated && found.row->route.method == "POST"; }

  std::vector<Row> rows_;
  Access access_;
  std::shared_ptr<RequestLanes> lanes_ = std::make_shared<RequestLanes>();  // last member, so destroyed first
};

}  // namespace lockstep
