// One server connection: reads requests within limits and answers them one after the other through a Responder; pipelined requests wait in
// a bounded buffer; a client that disconnects while it waits is noticed. All on the thread of the server's io_context. Internal to http/.
//   const auto connection = std::make_shared<Connection>(shared, std::move(transport)); connection->start();
#pragma once
#include <optional>
#include <vector>

#include "api/body_budget.h"
#include "http/answer_sender.h"
#include "http/deadline.h"
#include "http/request_reader.h"
#include "http/transport.h"

namespace lockstep {

class Connection : public TransportUser, public std::enable_shared_from_this<Connection> {
 public:
  using Clock = ServerState::Clock;
  Connection(std::shared_ptr<HttpShared> shared, std::unique_ptr<Transport> transport);
  void start();
  // Called every few milliseconds: closes at a passed deadline, and notices a client that left while its bytes wait unread.
  void check(Clock::time_point now);
  // Called when the server takes no new work: closes the connection if it has been answered and asks for nothing at the moment.
  void drain();
  // Since when the client has asked for nothing (since it connected, or since its last answer): its handshake or the headers of a request are
  // not complete. Empty: a request is being read or answered.
  std::optional<Clock::time_point> rests_since() const;
  bool busy() const { return phase_ != Phase::opening && phase_ != Phase::idle && phase_ != Phase::closed; }
  // Cancels the running answer; what the Api still gives for it is sent. by_server: because the server stops, not because the client left.
  void abandon(bool by_server = false);
  void close(bool by_server = false);

  // Takes an item from a responder; ignored when its request is over. It is sent with flush().
  void deliver(OutboxItem& item);
  void flush();
  const AnswerSender& answer() const { return answer_; }

  void on_open(const boost::system::error_code& fault) override;
  void on_read(const boost::system::error_code& fault, std::size_t bytes) override;
  void on_written(const boost::system::error_code& fault) override;

 private:
  enum class Phase { opening, idle, headers, body, answering, lingering, closed };

  void next_request();
  void read();
  void parse();
  void head_came();
  std::optional<ApiResponse> refuse_body();
  std::optional<ApiResponse> refusal();
  void refuse(ApiResponse response);
  void dispatch();
  void begin_answer();
  void on_client_end(bool broken);
  void finish_answer();
  void on_deadline();

  std::shared_ptr<HttpShared> shared_;
  std::unique_ptr<Transport> transport_;
  Phase phase_ = Phase::opening;
  Deadline deadline_;
  Clock::time_point rests_since_{};

  // Reading.
  std::vector<char> block_;
  std::string input_;  // received, not parsed yet
  std::optional<RequestReader> reader_;
  bool reading_ = false, client_ended_ = false;
  std::size_t discarded_ = 0;

  // The request at hand.
  std::uint64_t request_ = 0;
  std::weak_ptr<HttpResponder> responder_;
  std::shared_ptr<BodyLease> lease_;  // of its body; null: too small to be counted yet
  bool continued_ = false;
  AnswerSender answer_;
};

}  // namespace lockstep
