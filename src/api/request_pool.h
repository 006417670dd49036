// A pool of threads for requests that would keep the server's own thread busy for too long, such as decoding a large batch. Owners (API keys) take turns,
// and one owner never occupies all threads. When a client disconnects, its waiting requests are dropped, and a running one finds out through
// base/client_work.h. The memory of a body is counted by its lease. Knows nothing of the work itself. Any thread.
//   pool.post(std::move(request), responder, [](ApiRequest& r) { ... }, [](const std::exception& e) { return error_response(e); });
#pragma once
#include <functional>
#include <memory>

#include "api/exchange.h"

namespace lockstep {

class RequestPool {
 public:
  struct Options {
    std::size_t threads = 4;        // started when they are needed
    std::size_t most_of_owner = 3;  // requests of one owner that run at the same time
    std::size_t most_waiting = 4096;
  };
  using Work = std::function<void(ApiRequest&)>;
  using Failed = std::function<ApiResponse(const std::exception&)>;

  explicit RequestPool(const Options& options);
  ~RequestPool();  // drops requests that wait, cancels those that run (base/client_work.h) and waits for them
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // `failed` makes the answer of an exception that `work` throws. Error resource_exhausted: too many wait.
  void post(ApiRequest request, const std::shared_ptr<Responder>& out, Work work, Failed failed);

 private:
  struct Task;
  struct State;
  std::shared_ptr<State> state_;
};

// A server's pools: `quick` for short requests, `small` for those that may wait for the disk, `large` for those with long bodies. None waits for
// another, and in none has one owner all threads.
struct RequestLanes {
  RequestPool quick{{.threads = 2, .most_of_owner = 1}};
  RequestPool small{{.threads = 4, .most_of_owner = 2}};
  RequestPool large{{.threads = 4, .most_of_owner = 3}};
};

}  // namespace lockstep
