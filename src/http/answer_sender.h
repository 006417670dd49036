// Sends the answers of one connection, one after another: formats each, whole or as a stream, holds it until its client reads, passes it to the
// transport block by block, and counts and logs it at its end. All on the thread of the server's io_context. Internal to http/.
//   sender.next_request(); sender.asked().began = now; sender.open(); sender.send(response);
//   for (auto block = sender.next_block(); !block.empty() && transport.write(block, user); block = sender.next_block()) sender.written();
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "http/shared.h"

namespace lockstep {

class AnswerSender {
 public:
  using Clock = ServerState::Clock;
  // The request, as far as its answer depends on it.
  struct Asked {
    std::string request_id, method;
    bool http10 = false;
    bool keep_alive = true;  // false: the connection ends with the answer
    Examination examination;
    Clock::time_point began{};
  };

  explicit AnswerSender(std::shared_ptr<HttpShared> shared) : shared_(std::move(shared)) {}

  // The next one begins; nothing is known of it yet.
  void next_request();
  Asked& asked() { return asked_; }
  // It is to be answered, and counts among the open requests until record().
  void open();
  // Lowered by what the client has taken of the stream (Responder::pending_bytes).
  void tell_taken(std::shared_ptr<std::atomic<std::size_t>> pending) { stream_pending_ = std::move(pending); }
  // Its end, for logs and counters; `left`: the client had gone. Again: nothing happens.
  void record(bool left);

  bool streaming() const { return streaming_; }
  bool ended() const { return ended_; }  // nothing comes behind what is here
  void send(ApiResponse response);
  void begin_stream(const std::string& content_type);
  // False: more waits for the client than may (HttpOptions::max_pending_bytes).
  bool stream(std::string_view data);
  void end_stream();
  void send_continue();  // before the answer: the request's body may come

  // What the transport gets next; empty: all has been given. Stays where it is until written().
  std::string_view next_block();
  void written();
  void waits() { waits_since_ = Clock::now(); }  // the transport does not take the block at once
  bool writing() const { return writing_; }
  // Bytes of ours that wait for the client, and since when it has taken none. They are in HttpShared::held_bytes as they were when last counted.
  void count_held(bool closed = false);
  std::size_t held_bytes() const { return counted_bytes_; }
  Clock::time_point waits_since() const { return waits_since_; }

 private:
  bool has_no_body() const { return asked_.method == "HEAD"; }

  std::shared_ptr<HttpShared> shared_;
  Asked asked_;
  int status_ = 0;
  bool streaming_ = false, ended_ = false, writing_ = false, open_ = false, first_byte_ = false;
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
