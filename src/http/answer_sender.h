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

  // Forgets the last request, so that asked() can be set for the next one.
  void next_request();
  Asked& asked() { return asked_; }
  // Call when the request is about to be answered; it counts among the open requests until record().
  void open();
  // `pending`: the bytes of Responder::pending_bytes, lowered here by what the client has taken of the stream.
  void tell_taken(std::shared_ptr<std::atomic<std::size_t>> pending) { stream_pending_ = std::move(pending); }
  // Logs and counts the answer at its end; `left`: the client had gone. A second call does nothing.
  void record(bool left);

  bool streaming() const { return streaming_; }
  bool ended() const { return ended_; }  // the answer is complete, though perhaps not sent yet
  void send(ApiResponse response);
  void begin_stream(const std::string& content_type);
  // False, and `data` is dropped: more than HttpOptions::max_pending_bytes already wait for the client.
  bool stream(std::string_view data);
  void end_stream();
  void send_continue();  // "100 Continue", before the answer: the client may send the request's body

  // The bytes that the transport gets next; empty: none are left. They stay valid until written().
  std::string_view next_block();
  void written();
  void waits() { waits_since_ = Clock::now(); }  // call when the transport could not take the block at once
  bool writing() const { return writing_; }
  // count_held() counts the bytes of this answer that wait for the client (0 when `closed`) and corrects the sum HttpShared::held_bytes;
  // held_bytes() is the last count, and waits_since() the time since when the client has taken none.
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
  std::string_view tail_;  // a large body, sent after pending_
  std::shared_ptr<const void> tail_owner_;
  std::size_t tail_bytes_ = 0;  // memory of the tail if this answer owns it, else 0
  std::string_view unwritten_;  // of written_ or tail_: what the transport has not been given yet
  std::size_t counted_bytes_ = 0;
  Clock::time_point waits_since_{};
  std::shared_ptr<std::atomic<std::size_t>> stream_pending_;
  std::size_t stream_bytes_ = 0, stream_bytes_written_ = 0;  // bytes of the stream, without chunk framing, in pending_ and in written_
};

}  // namespace lockstep
