// State that the connections of a server share, and decisions between them: which idle connection is closed for a new one, and which is closed when
// too many bytes wait to be sent. All on the thread of the server's io_context. Internal to http/.
//   shared->held_bytes += bytes; if (shared->held_bytes > limit) shared->bound_held_bytes();
#pragma once
#include <memory>
#include <unordered_set>

#include "api/server_state.h"
#include "http/outbox.h"
#include "http/server.h"

namespace lockstep {

class Connection;

// While the server is destroyed, a thread that uses a responder may hold the last reference to a connection. So this shares ownership of the
// io_context, which connections need as long as they live, but not of the Api, which may own that very thread.
struct HttpShared {
  std::shared_ptr<boost::asio::io_context> io;  // first member, so destroyed last
  std::shared_ptr<Outbox> outbox;
  Api* api = nullptr;  // the server's; for the io thread alone
  std::shared_ptr<ServerState> state;
  HttpOptions options;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::size_t held_bytes = 0;  // of all answers whose clients have not taken them yet

  // Closes the connections whose clients have not read for longest, until the rest is within the limit.
  void bound_held_bytes();
  // Closes the connection that has asked for nothing for longest. False, and closes none: no connection has for rest_seconds.
  bool close_resting();
};

}  // namespace lockstep
