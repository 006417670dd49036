#include "http/connection.h"

#include <fmt/format.h>

#include <boost/asio/error.hpp>

#include <algorithm>
#include <cstdlib>

#include "api/errors.h"
#include "base/log.h"
#include "http/answer_head.h"

namespace lockstep {
using boost::system::error_code;

namespace {
constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kMostDiscarded = 64 << 20;
constexpr std::size_t kUncountedBody = 16 << 10;  // what a block of reading may bring anyway; heartbeats are shorter
constexpr std::size_t kCopiedBody = 64 << 10;     // larger ones are written where they lie
constexpr double kLingerSeconds = 2, kEndSeconds = 2;
constexpr std::size_t kWriteBlock = 256 << 10;  // each must be taken in time, so a large answer gets longer only while it moves

double seconds_between(Connection::Clock::time_point from, Connection::Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }
}  // namespace

Connection::Connection(std::shared_ptr<HttpShared> shared, std::unique_ptr<Transport> transport)
    : shared_(std::move(shared)), transport_(std::move(transport)), block_(kReadBytes) {}

void Connection::start() {
  rests_since_ = Clock::now();
  set_deadline(shared_->options.handshake_seconds);
  transport_->open(shared_from_this());
}

void Connection::on_open(const error_code& fault) {
  if (phase_ != Phase::opening) return;
  if (fault) {
    log_debug("a handshake failed", {{"reason", fault.message()}});
    return close();
  }
  next_request();
}

void Connection::next_request() {
  const HttpOptions& o = shared_->options;
  reader_.emplace(HttpLimits{static_cast<std::size_t>(o.max_header_bytes), static_cast<std::size_t>(o.max_headers),
                             static_cast<std::size_t>(o.max_target_bytes), static_cast<std::size_t>(o.max_body_bytes)});
  phase_ = Phase::idle;
  rests_since_ = Clock::now();
  examination_ = {};
  lease_.reset();
  request_id_.clear();
  method_.clear();
  keep_alive_ = true;
  head_ = http10_ = examined_ = continued_ = streaming_ = ended_ = open_ = first_byte_ = false;
  first_byte_seconds_ = -1;
  answer_bytes_ = 0;
  stream_pending_.reset();
  stream_bytes_ = stream_bytes_written_ = 0;
  if (pending_.capacity() > kCopiedBody) pending_.shrink_to_fit();
  if (written_.capacity() > kCopiedBody) std::string().swap(written_);
  set_deadline(o.idle_seconds);
  if (!input_.empty()) return parse();  // sent ahead
  if (client_ended_ || (shared_->state->draining && request_ > 0)) return close();
  read();
}

void Connection::read() {
  if (reading_ || client_ended_) return;
  reading_ = true;
  transport_->read(block_, shared_from_this());
}

void Connection::on_read(const error_code& fault, std::size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::closed) return;
  shared_->state->bytes_received.fetch_add(bytes, std::memory_order_relaxed);
  if (phase_ == Phase::lingering) {
    discarded_ += bytes;
    if (fault || discarded_ > kMostDiscarded) return close();
    return read();
  }
  if (fault) return on_client_end(fault != boost::asio::error::eof);
  input_.append(block_.data(), bytes);
  if (phase_ != Phase::answering) return parse();
  if (input_.size() < static_cast<std::size_t>(shared_->options.max_ahead_bytes)) read();  // else check() watches
}

// The client sends no more. Between requests and within one there is nobody to answer. One that waits for its answer has most
// likely disconnected: generation stops, and what exists is still sent, in case the client only closed its half.
void Connection::on_client_end(bool broken) {
  client_ended_ = true;
  if (phase_ != Phase::answering) return close();
  log_debug("a client left before its answer");
  abandon();
  if (broken) return close();
  if (!writing_) set_deadline(kEndSeconds);
}

void Connection::parse() {
  if (phase_ == Phase::idle) {
    phase_ = Phase::headers;
    began_ = Clock::now();
    set_deadline(shared_->options.header_seconds);
  }
  const bool in_headers = reader_->state() == RequestReader::State::headers;
  take_input();
  if (in_headers && reader_->state() != RequestReader::State::headers) {
    head_came();
    if (reader_->state() == RequestReader::State::body && !examination_.refusal) examination_.refusal = refuse_body();
    if (reader_->state() == RequestReader::State::body) take_input();  // what came with the headers: a block at most
  } else if (reader_->state() == RequestReader::State::body) {
    if (std::optional<ApiResponse> refusal = refuse_body()) {  // its chunks are too many by now
      keep_alive_ = false;
      begin_answer();
      answer(std::move(*refusal));
      return flush();
    }
  }
  const auto state = reader_->state();
  if (state == RequestReader::State::refused) return refuse(reader_->status(), reader_->message());
  if (state == RequestReader::State::done) return dispatch();
  if (state == RequestReader::State::body) {
    if (phase_ == Phase::headers) {
      phase_ = Phase::body;
      set_deadline(shared_->options.body_seconds);
      // Refuses a request by its headers, before the client sends the body.
      if (shared_->state->draining && !examination_.while_draining) examination_.refusal = draining_answer();
      if (examination_.refusal) {
        keep_alive_ = false;
        begin_answer();
        answer(std::move(*examination_.refusal));
        return flush();
      }
    }
    if (reader_->expects_continue() && !std::exchange(continued_, true)) {
      pending_ += "HTTP/1.1 100 Continue\r\n\r\n";
      flush();
      if (phase_ == Phase::closed) return;
    }
  }
  if (client_ended_) return close();
  read();
}

void Connection::take_input() {
  const std::size_t used = reader_->feed(input_);
  if (used == input_.size()) input_.clear();
  else input_.erase(0, used);
  if (input_.empty() && input_.capacity() > kCopiedBody) input_.shrink_to_fit();
}

// Reserves a body's memory before reading it: a body that does not fit is not read.
std::optional<ApiResponse> Connection::refuse_body() {
  const std::size_t bytes = reader_->body_bytes();
  if (bytes <= kUncountedBody) return std::nullopt;
  try {
    if (!lease_) lease_ = shared_->options.bodies->lease(examination_.owner);
    lease_->settle(bytes);
    return std::nullopt;
  } catch (const Error& e) {
    return lockstep::error_response(e);
  }
}

void Connection::head_came() {
  const ApiRequest& request = reader_->request();
  request_id_ = request.request_id;
  method_ = request.method;
  head_ = method_ == "HEAD";
  http10_ = reader_->http10();
  keep_alive_ = reader_->keep_alive();
  if (reader_->state() == RequestReader::State::refused) return;
  examination_ = shared_->api->examine(request);
  examined_ = true;
}

// An answer of our own to a request that cannot be read to its end.
void Connection::refuse(int status, std::string_view message) {
  keep_alive_ = false;
  begin_answer();
  answer(shared_->api->error_response(status, message));
  flush();
}

ApiResponse Connection::draining_answer() const {
  ApiResponse response = shared_->api->error_response(examination_.draining_status, "the server is stopping and takes no new requests");
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

void Connection::begin_answer() {
  phase_ = Phase::answering;
  ++request_;
  open_ = true;
  shared_->state->open_requests.fetch_add(1, std::memory_order_relaxed);
  if (request_id_.empty()) request_id_ = new_request_id();
  set_deadline(0);
}

void Connection::dispatch() {
  begin_answer();
  const auto responder = std::make_shared<HttpResponder>(shared_->outbox, weak_from_this(), request_);
  responder_ = responder;
  stream_pending_ = responder->pending();
  if (client_ended_) responder->abandon();
  else if (input_.size() < static_cast<std::size_t>(shared_->options.max_ahead_bytes)) read();  // to notice when the client goes
  if (shared_->state->draining && !examination_.while_draining) return responder->send(draining_answer());
  if (examination_.refusal) return responder->send(std::move(*examination_.refusal));
  ApiRequest request = std::move(reader_->request());
  request.key_name = examination_.key_name;
  request.from_this_machine = transport_->peer_is_local();
  request.owner = examination_.owner;
  if (!lease_ && !request.body.empty()) lease_ = shared_->options.bodies->lease(examination_.owner);
  request.lease = std::move(lease_);
  reader_.reset();
  shared_->api->handle(std::move(request), responder);
}

void Connection::check(Clock::time_point now) {
  if (now >= deadline_) return on_deadline();
  if (phase_ == Phase::answering && !reading_ && !client_ended_ && transport_->peer_left()) on_client_end(true);
}

void Connection::drain() {
  if (phase_ == Phase::idle || phase_ == Phase::opening) close();
}

void Connection::abandon(bool by_server) {
  if (const auto responder = responder_.lock()) responder->abandon(by_server);
}

void Connection::close(bool by_server) {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::answering) record(!by_server);
  phase_ = Phase::closed;
  lease_.reset();
  count_held();
  transport_->close();
  shared_->state->connections.fetch_sub(1, std::memory_order_relaxed);
  shared_->connections.erase(shared_from_this());
}

void Connection::send(std::uint64_t request, ApiResponse response) {
  if (current(request) && !streaming_ && !ended_) answer(std::move(response));
}

void Connection::answer(ApiResponse response) {
  if (shared_->state->draining) keep_alive_ = false;
  status_ = response.status;
  if (status_ == 429)
    for (auto& [name, value] : response.headers)
      if (name == "Retry-After") value = std::to_string(std::max(std::atoi(value.c_str()), shared_->state->retry_after_seconds()));
  const std::string_view body = response.bytes();
  pending_ += answer_head({.status = status_,
                           .content_type = response.content_type,
                           .content_length = body.size(),
                           .keep_alive = keep_alive_,
                           .http10 = http10_,
                           .request_id = request_id_},
                          examination_.headers, response.headers);
  ended_ = true;
  if (head_ || status_ == 204 || status_ == 304) return;
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

void Connection::begin_stream(std::uint64_t request, const std::string& content_type) {
  if (!current(request) || streaming_ || ended_) return;
  streaming_ = true;
  status_ = 200;
  if (http10_ || shared_->state->draining) keep_alive_ = false;  // without chunks the end of the connection ends the answer
  pending_ += answer_head({.content_type = content_type, .chunked = !http10_, .keep_alive = keep_alive_, .http10 = http10_, .request_id = request_id_},
                          examination_.headers, {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

void Connection::stream(std::uint64_t request, std::string_view data) {
  if (!current(request) || !streaming_ || ended_ || data.empty()) return;
  if (!std::exchange(first_byte_, true)) first_byte_seconds_ = seconds_between(began_, Clock::now());
  if (pending_.size() + written_.size() > static_cast<std::size_t>(shared_->options.max_pending_bytes)) {
    log_warning("a client does not read its stream; it is closed", {{"request", request_id_}, {"pending_bytes", pending_.size()}});
    shared_->state->streams_dropped.fetch_add(1, std::memory_order_relaxed);
    abandon();
    return close();
  }
  stream_bytes_ += data.size();
  if (head_) return;
  answer_bytes_ += data.size();
  if (http10_) {
    pending_ += data;
    return;
  }
  fmt::format_to(std::back_inserter(pending_), "{:x}\r\n", data.size());
  pending_ += data;
  pending_ += "\r\n";
}

void Connection::end_stream(std::uint64_t request) {
  if (!current(request) || !streaming_ || ended_) return;
  ended_ = true;
  if (!http10_ && !head_) pending_ += "0\r\n\r\n";
}

void Connection::dropped(std::uint64_t request) {
  if (!current(request) || ended_) return;
  if (!streaming_) return answer(shared_->api->error_response(500, "the request was dropped without an answer"));
  close();  // a stream that ends without its last chunk is a cut, and shows as one
}

void Connection::flush() {
  if (!writing_ && phase_ != Phase::closed) write_next();
  count_held();
  if (shared_->held_bytes > static_cast<std::size_t>(shared_->options.max_held_bytes)) shared_->bound_held_bytes();
}

void Connection::count_held() {
  const std::size_t now = phase_ == Phase::closed || !writing_ ? 0 : pending_.size() + written_.size() + tail_bytes_;
  shared_->held_bytes += now - std::exchange(counted_bytes_, now);
}

void HttpShared::bound_held_bytes() {
  std::vector<std::shared_ptr<Connection>> waiting;
  for (const auto& connection : connections)
    if (connection->held_bytes() > 0) waiting.push_back(connection);
  std::sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) { return a->waits_since() < b->waits_since(); });
  for (const auto& connection : waiting) {
    if (held_bytes <= static_cast<std::size_t>(options.max_held_bytes)) return;
    log_warning("answers wait for clients that do not read them; the one that waits longest is closed", {{"held_bytes", held_bytes}});
    state->streams_dropped.fetch_add(1, std::memory_order_relaxed);
    connection->abandon();
    connection->close();
  }
}

bool HttpShared::close_resting() {
  std::shared_ptr<Connection> oldest;
  for (const auto& connection : connections)
    if (connection->rests() && (!oldest || connection->rests_since() < oldest->rests_since())) oldest = connection;
  if (!oldest || seconds_between(oldest->rests_since(), Connection::Clock::now()) < options.rest_seconds) return false;
  oldest->close();
  return true;
}

void Connection::write_next() {
  while (phase_ != Phase::closed) {
    if (unwritten_.empty()) {
      if (!pending_.empty()) {
        written_.clear();
        written_.swap(pending_);
        stream_bytes_written_ = std::exchange(stream_bytes_, 0);
        unwritten_ = written_;
      } else if (!tail_.empty()) {
        unwritten_ = std::exchange(tail_, {});
      } else {
        if (ended_ && phase_ == Phase::answering) finish_answer();
        return;
      }
    }
    const std::string_view data = unwritten_.substr(0, kWriteBlock);
    unwritten_.remove_prefix(data.size());
    writing_ = true;
    shared_->state->bytes_sent.fetch_add(data.size(), std::memory_order_relaxed);
    if (!transport_->write(data, shared_from_this())) {
      waits_since_ = Clock::now();
      if (phase_ == Phase::answering) set_deadline(shared_->options.write_seconds);
      return;
    }
    written();
  }
}

void Connection::written() {
  writing_ = false;
  if (!unwritten_.empty()) return;
  written_.clear();
  if (tail_.empty()) tail_bytes_ = 0;
  if (tail_.empty()) tail_owner_.reset();
  if (stream_pending_) stream_pending_->fetch_sub(std::exchange(stream_bytes_written_, 0), std::memory_order_relaxed);
}

void Connection::on_written(const error_code& fault) {
  written();
  if (phase_ == Phase::closed) return;
  if (fault) {
    abandon();
    return close();
  }
  if (phase_ == Phase::answering) set_deadline(client_ended_ ? kEndSeconds : 0);
  write_next();
  count_held();
}

void Connection::record(bool left) {
  if (!std::exchange(open_, false)) return;
  ServerState& state = *shared_->state;
  state.open_requests.fetch_sub(1, std::memory_order_relaxed);
  const double seconds = seconds_between(began_, Clock::now());
  left = left || client_ended_;
  if (left && (status_ == 0 || status_ >= 500)) status_ = 499;  // as others write it: the client closed the request
  state.end({.route = examination_.route, .method = method_, .status = status_, .seconds = seconds, .first_byte_seconds = first_byte_seconds_, .left = left});
  if (shared_->options.access_log)
    log_info("request", {{"id", request_id_},
                         {"method", known_method(method_)},
                         {"route", examination_.route},
                         {"status", status_},
                         {"bytes", answer_bytes_},
                         {"ms", seconds * 1000},
                         {"key", examination_.key_name},
                         {"left", left}});
  status_ = 0;
}

void Connection::finish_answer() {
  record(false);
  if (keep_alive_ && !(shared_->state->draining && input_.empty())) return next_request();
  if (!input_.empty() || (reader_ && reader_->state() != RequestReader::State::done) || transport_->must_linger()) {
    // The answer is sent. Closing with unread bytes of the client would reset the connection and lose it, so they are read first.
    phase_ = Phase::lingering;
    set_deadline(kLingerSeconds);
    transport_->end_writing(shared_from_this());
    input_.clear();
    if (client_ended_) return close();
    return read();
  }
  close();
}

void Connection::set_deadline(double seconds) {
  deadline_seconds_ = seconds;
  deadline_ = seconds <= 0 ? Clock::time_point::max() : Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6));
}

void Connection::on_deadline() {
  if (phase_ == Phase::headers || phase_ == Phase::body)
    return refuse(408, fmt::format("the request's {} did not arrive within {} seconds", phase_ == Phase::headers ? "headers" : "body", deadline_seconds_));
  if (phase_ == Phase::answering) {
    log_debug("a client takes no bytes; it is closed");
    abandon();
  }
  close();
}

}  // namespace lockstep
