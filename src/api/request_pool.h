// Threads for requests that take longer than a server's own thread should be away. Owners take turns, and one owner never has them all:
// another's request begins at once while there is a thread. Who leaves is not worked for: what waits is dropped with its body, what
// runs learns of it (base/client_work.h). What a body takes is counted by its lease. Knows nothing of the work. Any thread.
//   pool.post(std::move(request), responder, [](ApiRequest& r) { ... }, [](const std::exception& e) { return error_response(e); });
#pragma once
#include <functional>
#include <memory>

#include "api/exchange.h"

namespace lockstep {

class RequestPool {
 public:
  struct Options {
    std::size_t threads = 4;        // begun when they are needed
    std::size_t most_of_owner = 3;  // requests that run
    std::size_t most_waiting = 4096;
  };
  using Work = std::function<void(ApiRequest&)>;
  using Failed = std::function<ApiResponse(const std::exception&)>;

  explicit RequestPool(const Options& options);
  ~RequestPool();  // what waits is dropped; what runs is told that nobody waits for it, and ends
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // `failed` makes the answer of what `work` throws. Error resource_exhausted: too many wait.
  void post(ApiRequest request, const std::shared_ptr<Responder>& out, Work work, Failed failed);

 private:
  struct Task;
  struct State;
  std::shared_ptr<State> state_;
};

// Of a server: what is short, what may wait for the disk, what may be long. None waits for another, and in none has one owner all threads.
struct RequestLanes {
  RequestPool quick{{.threads = 2, .most_of_owner = 1}};
  RequestPool small{{.threads = 4, .most_of_owner = 2}};
  RequestPool large{{.threads = 4, .most_of_owner = 3}};
};

}  // namespace lockstep
