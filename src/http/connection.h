// One server connection: reads requests within limits and answers them one after the other through a Responder; pipelined requests wait in
// a bounded buffer; a client that disconnects while it waits is noticed. All on the thread of the server's io_context. Internal to http/.
#pragma once
#include <chrono>
#include <optional>
#include <unordered_set>
#include <vector>

#include "api/body_budget.h"
#include "api/server_state.h"
#include "http/outbox.h"
#include "http/request_reader.h"
#include "http/server.h"
#include "http/transport.h"

namespace lockstep {

class Connection;

// What the connections of a server share. The last to hold a connection may be a thread that speaks to a responder while the
// server goes: so the io_context, whose objects connections have, lives as long as they do, and the Api, which may own that very
// thread, is not theirs.
struct HttpShared {
  std::shared_ptr<boost::asio::io_context> io;  // first: it goes last
  std::shared_ptr<Outbox> outbox;
  Api* api = nullptr;  // the server's; for the io thread alone
  std::shared_ptr<ServerState> state;
  HttpOptions options;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::size_t held_bytes = 0;  // of all answers whose clients have not taken them yet

  // Closes the connections whose clients have not read for longest, until the rest is within the limit.
  void bound_held_bytes();
  // Closes the one that has asked for nothing for longest. False: none has for rest_seconds.
  bool close_resting();
};

class Connection : public TransportUser, public std::enable_shared_from_this<Connection> {
 public:
  using Clock = ServerState::Clock;
  Connection(std::shared_ptr<HttpShared> shared, std::unique_ptr<Transport> transport);
  void start();
  // Now and then: deadlines, and clients that left while their bytes wait unread.
  void check(Clock::time_point now);
  // The server takes no new work: closes when nothing has begun.
  void drain();
  // Has asked for nothing yet, or for nothing more: no handshake, no request that is whole up to its headers.
  bool rests() const { return phase_ == Phase::opening || phase_ == Phase::idle || phase_ == Phase::headers; }
  Clock::time_point rests_since() const { return rests_since_; }
  bool busy() const { return phase_ != Phase::opening && phase_ != Phase::idle && phase_ != Phase::closed; }
  // Cancels the running answer; what the Api still makes of it is sent. by_server: because the server stops, not because the client left.
  void abandon(bool by_server = false);
  void close(bool by_server = false);

  // For the responder of request number `request`; ignored when that is over. What they write goes out with flush().
  void send(std::uint64_t request, ApiResponse response);
  void begin_stream(std::uint64_t request, const std::string& content_type);
  void stream(std::uint64_t request, std::string_view data);
  void end_stream(std::uint64_t request);
  void dropped(std::uint64_t request);  // the responder went without an answer
  void flush();
  // Bytes of ours that wait for the client, and since when it has taken none.
  std::size_t held_bytes() const { return counted_bytes_; }
  Clock::time_point waits_since() const { return waits_since_; }

  void on_open(const boost::system::error_code& fault) override;
  void on_read(const boost::system::error_code& fault, std::size_t bytes) override;
  void on_written(const boost::system::error_code& fault) override;

 private:
  enum class Phase { opening, idle, headers, body, answering, lingering, closed };

  void next_request();
  void read();
  void parse();
  void take_input();
  void head_came();
  std::optional<ApiResponse> refuse_body();
  void refuse(int status, std::string_view message);
  void dispatch();
  ApiResponse draining_answer() const;
  void begin_answer();
  void on_client_end(bool broken);
  void answer(ApiResponse response);
  void write_next();
  void count_held();
  void written();
  void finish_answer();
  void record(bool left);
  void set_deadline(double seconds);  // 0: none
  void on_deadline();
  bool current(std::uint64_t request) const { return phase_ == Phase::answering && request == request_; }

  std::shared_ptr<HttpShared> shared_;
  std::unique_ptr<Transport> transport_;
  Phase phase_ = Phase::opening;
  Clock::time_point deadline_ = Clock::time_point::max(), rests_since_{};
  double deadline_seconds_ = 0;

  // Reading.
  std::vector<char> block_;
  std::string input_;  // read, and not parsed yet
  std::optional<RequestReader> reader_;
  bool reading_ = false, client_ended_ = false;
  std::size_t discarded_ = 0;

  // The request at hand.
  std::uint64_t request_ = 0;
  std::weak_ptr<HttpResponder> responder_;
  Examination examination_;
  std::shared_ptr<BodyLease> lease_;  // of its body; null: too small to be counted yet
  std::string request_id_, method_;
  bool keep_alive_ = true, head_ = false, http10_ = false, examined_ = false, continued_ = false;

  // Its answer.
  int status_ = 0;
  bool streaming_ = false, ended_ = false, writing_ = false, open_ = false, first_byte_ = false;
  Clock::time_point began_{};
  double first_byte_seconds_ = -1;
  std::uint64_t answer_bytes_ = 0;
  std::string pending_, written_;
  std::string_view tail_;  // a large body, behind pending_
  std::shared_ptr<const void> tail_owner_;
  std::size_t tail_bytes_ = 0;  // of it, where they are this answer's own
  std::string_view unwritten_;  // of written_ or tail_: what the transport has not been given yet
  std::size_t counted_bytes_ = 0;
  Clock::time_point waits_since_{};
  std::shared_ptr<std::atomic<std::size_t>> stream_pending_;
  std::size_t stream_bytes_ = 0, stream_bytes_written_ = 0;  // of the stream's own in pending_ and written_
};

}  // namespace lockstep
