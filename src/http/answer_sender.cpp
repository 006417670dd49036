#include "http/answer_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/seconds.h"
#include "http/answer_head.h"
#include "http/request_reader.h"

namespace lockstep {

namespace {
constexpr std::size_t kCopiedBody = 64 << 10;   // a larger body is written from where it lies, without a copy
constexpr std::size_t kWriteBlock = 256 << 10;  // the client's deadline (write_seconds) is for each block, so a large answer may take long
}  // namespace

void AnswerSender::next_request() {
  asked_ = {};
  status_ = 0;
  streaming_ = ended_ = open_ = first_byte_ = false;
  first_byte_seconds_ = -1;
  answer_bytes_ = 0;
  stream_pending_.reset();
  stream_bytes_ = stream_bytes_written_ = 0;
  if (pending_.capacity() > kCopiedBody) pending_.shrink_to_fit();
  if (written_.capacity() > kCopiedBody) std::string().swap(written_);
}

void AnswerSender::open() {
  open_ = true;
  shared_->state->open_requests.fetch_add(1, std::memory_order_relaxed);
  if (asked_.request_id.empty()) asked_.request_id = new_request_id();
}

void AnswerSender::send(ApiResponse response) {
  if (shared_->state->draining) asked_.keep_alive = false;
  status_ = response.status;
  if (status_ == 429)
    for (auto& [name, value] : response.headers)
      if (name == "Retry-After") value = std::to_string(std::max(std::atoi(value.c_str()), shared_->state->retry_after_seconds()));
  const std::string_view body = response.bytes();
  pending_ += answer_head({.status = status_,
                           .content_type = response.content_type,
                           .content_length = body.size(),
                           .keep_alive = asked_.keep_alive,
                           .http10 = asked_.http10,
                           .request_id = asked_.request_id},
                          asked_.examination.headers, response.headers);
  ended_ = true;
  if (has_no_body() || status_ == 204 || status_ == 304) return;
  answer_bytes_ = body.size();
  if (body.size() <= kCopiedBody) {
    pending_ += body;
  } else if (!response.static_body.empty()) {
    tail_ = response.static_body;
    tail_owner_ = std::move(response.owner);
    tail_bytes_ = 0;
  } else {
    const auto owned = std::make_shared<const std::string>(std::move(response.body));
    tail_ = *owned;
    tail_owner_ = owned;
    tail_bytes_ = owned->capacity();
  }
}

void AnswerSender::begin_stream(const std::string& content_type) {
  streaming_ = true;
  status_ = 200;
  if (asked_.http10 || shared_->state->draining) asked_.keep_alive = false;  // without chunks the end of the connection ends the answer
  pending_ += answer_head(
      {.content_type = content_type, .chunked = !asked_.http10, .keep_alive = asked_.keep_alive, .http10 = asked_.http10, .request_id = asked_.request_id},
      asked_.examination.headers, {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

bool AnswerSender::stream(std::string_view data) {
  if (data.empty()) return true;
  if (!std::exchange(first_byte_, true)) first_byte_seconds_ = seconds_since(asked_.began);
  if (pending_.size() + written_.size() > static_cast<std::size_t>(shared_->options.max_pending_bytes)) {
    log_warning("a client does not read its stream; it is closed", {{"request", asked_.request_id}, {"pending_bytes", pending_.size()}});
    shared_->state->streams_dropped.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  stream_bytes_ += data.size();
  if (has_no_body()) return true;
  answer_bytes_ += data.size();
  if (asked_.http10) {
    pending_ += data;
    return true;
  }
  fmt::format_to(std::back_inserter(pending_), "{:x}\r\n", data.size());
  pending_ += data;
  pending_ += "\r\n";
  return true;
}

void AnswerSender::end_stream() {
  ended_ = true;
  if (!asked_.http10 && !has_no_body()) pending_ += "0\r\n\r\n";
}

void AnswerSender::send_continue() { pending_ += "HTTP/1.1 100 Continue\r\n\r\n"; }

std::string_view AnswerSender::next_block() {
  if (unwritten_.empty()) {
    if (!pending_.empty()) {
      written_.clear();
      written_.swap(pending_);
      stream_bytes_written_ = std::exchange(stream_bytes_, 0);
      unwritten_ = written_;
    } else if (!tail_.empty()) {
      unwritten_ = std::exchange(tail_, {});
    } else {
      return {};
    }
  }
  const std::string_view block = unwritten_.substr(0, kWriteBlock);
  unwritten_.remove_prefix(block.size());
  writing_ = true;
  shared_->state->bytes_sent.fetch_add(block.size(), std::memory_order_relaxed);
  return block;
}

void AnswerSender::written() {
  writing_ = false;
  if (!unwritten_.empty()) return;
  written_.clear();
  if (tail_.empty()) tail_bytes_ = 0;
  if (tail_.empty()) tail_owner_.reset();
  if (stream_pending_) stream_pending_->fetch_sub(std::exchange(stream_bytes_written_, 0), std::memory_order_relaxed);
}

void AnswerSender::count_held(bool closed) {
  const std::size_t now = closed || !writing_ ? 0 : pending_.size() + written_.size() + tail_bytes_;
  shared_->held_bytes += now - std::exchange(counted_bytes_, now);
}

void AnswerSender::record(bool left) {
  if (!std::exchange(open_, false)) return;
  ServerState& state = *shared_->state;
  state.open_requests.fetch_sub(1, std::memory_order_relaxed);
  const double seconds = seconds_since(asked_.began);
  const Examination& examination = asked_.examination;
  if (left && (status_ == 0 || status_ >= 500)) status_ = 499;  // nginx's status for: the client closed the request
  state.end(
      {.route = examination.route, .method = asked_.method, .status = status_, .seconds = seconds, .first_byte_seconds = first_byte_seconds_, .left = left});
  if (shared_->options.access_log)
    log_info("request", {{"id", asked_.request_id},
                         {"method", known_method(asked_.method)},
                         {"route", examination.route},
                         {"status", status_},
                         {"bytes", answer_bytes_},
                         {"ms", seconds * 1000},
                         {"key", examination.key_name},
                         {"left", left}});
}

}  // namespace lockstep
