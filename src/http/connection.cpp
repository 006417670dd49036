#include "http/connection.h"

#include <fmt/format.h>

#include <boost/asio/error.hpp>

#include "api/errors.h"
#include "base/log.h"

namespace lockstep {
using boost::system::error_code;

namespace {
constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kMostDiscarded = 64 << 20;
constexpr std::size_t kUncountedBody = 16 << 10;  // one read may bring as much before anything is checked; heartbeats are shorter
constexpr double kLingerSeconds = 2, kEndSeconds = 2;
}  // namespace

Connection::Connection(std::shared_ptr<HttpShared> shared, std::unique_ptr<Transport> transport)
    : shared_(std::move(shared)), transport_(std::move(transport)), block_(kReadBytes), answer_(shared_) {}

void Connection::start() {
  rests_since_ = Clock::now();
  deadline_.set(shared_->options.handshake_seconds);
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
  lease_.reset();
  continued_ = false;
  answer_.next_request();
  deadline_.set(o.idle_seconds);
  if (!input_.empty()) return parse();  // a pipelined request
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

// The client sends no more. Between requests and within one there is nobody to answer. A client that waits for its answer has most
// likely disconnected: generation stops, and the part that exists is still sent, in case the client only closed its half.
void Connection::on_client_end(bool broken) {
  client_ended_ = true;
  if (phase_ != Phase::answering) return close();
  log_debug("a client left before its answer");
  abandon();
  if (broken) return close();
  if (!answer_.writing()) deadline_.set(kEndSeconds);
}

void Connection::parse() {
  using State = RequestReader::State;
  if (phase_ == Phase::idle) {
    phase_ = Phase::headers;
    answer_.asked().began = Clock::now();
    deadline_.set(shared_->options.header_seconds);
  }
  const bool in_headers = reader_->state() == State::headers;
  reader_->take(input_);
  if (in_headers && reader_->state() != State::headers) {
    head_came();
    std::optional<ApiResponse>& refused = answer_.asked().examination.refusal;
    if (reader_->state() == State::body && !refused) refused = refuse_body();
    if (reader_->state() == State::body) reader_->take(input_);  // the part of the body that came with the headers: one read at most
  } else if (reader_->state() == State::body) {
    if (std::optional<ApiResponse> refused = refuse_body()) return refuse(std::move(*refused));  // a chunked body that has grown too large
  }
  const State state = reader_->state();
  if (state == State::refused) return refuse(shared_->api->error_response(reader_->status(), reader_->message()));
  if (state == State::done) return dispatch();
  if (state == State::body) {
    if (phase_ == Phase::headers) {
      phase_ = Phase::body;
      deadline_.set(shared_->options.body_seconds);
      // Refuses a request by its headers, before the client sends the body.
      if (std::optional<ApiResponse> refused = refusal()) return refuse(std::move(*refused));
    }
    if (reader_->expects_continue() && !std::exchange(continued_, true)) {
      answer_.send_continue();
      flush();
      if (phase_ == Phase::closed) return;
    }
  }
  if (client_ended_) return close();
  read();
}

// Reserves a body's memory before reading it: a body that does not fit is not read.
std::optional<ApiResponse> Connection::refuse_body() {
  const std::size_t bytes = reader_->body_bytes();
  if (bytes <= kUncountedBody) return std::nullopt;
  try {
    if (!lease_) lease_ = shared_->options.bodies->lease(answer_.asked().examination.owner);
    lease_->settle(bytes);
    return std::nullopt;
  } catch (const Error& e) {
    return lockstep::error_response(e);
  }
}

void Connection::head_came() {
  const ApiRequest& request = reader_->request();
  AnswerSender::Asked& asked = answer_.asked();
  asked.request_id = request.request_id;
  asked.method = request.method;
  asked.http10 = reader_->http10();
  asked.keep_alive = reader_->keep_alive();
  if (reader_->state() != RequestReader::State::refused) asked.examination = shared_->api->examine(request);
}

// The answer to a request that is not handled: the server takes no new ones, or the Api refuses it by its headers. Empty: it is handled.
std::optional<ApiResponse> Connection::refusal() {
  Examination& examination = answer_.asked().examination;
  if (!shared_->state->draining || examination.while_draining) return std::move(examination.refusal);
  ApiResponse response = shared_->api->error_response(examination.draining_status, "the server is stopping and takes no new requests");
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

// Answers a request that is not read to its end, and closes behind the answer.
void Connection::refuse(ApiResponse response) {
  answer_.asked().keep_alive = false;
  begin_answer();
  answer_.send(std::move(response));
  flush();
}

void Connection::begin_answer() {
  phase_ = Phase::answering;
  ++request_;
  answer_.open();
  deadline_.set(0);
}

void Connection::dispatch() {
  begin_answer();
  const auto responder = std::make_shared<HttpResponder>(shared_->outbox, weak_from_this(), request_);
  responder_ = responder;
  answer_.tell_taken(responder->pending());
  if (client_ended_) responder->abandon();
  else if (input_.size() < static_cast<std::size_t>(shared_->options.max_ahead_bytes)) read();  // to notice when the client goes
  if (std::optional<ApiResponse> refused = refusal()) return responder->send(std::move(*refused));
  const Examination& examination = answer_.asked().examination;
  ApiRequest request = std::move(reader_->request());
  request.key_name = examination.key_name;
  request.from_this_machine = transport_->peer_is_local();
  request.owner = examination.owner;
  if (!lease_ && !request.body.empty()) lease_ = shared_->options.bodies->lease(examination.owner);
  request.lease = std::move(lease_);
  reader_.reset();
  shared_->api->handle(std::move(request), responder);
}

void Connection::check(Clock::time_point now) {
  if (deadline_.passed(now)) return on_deadline();
  if (phase_ == Phase::answering && !reading_ && !client_ended_ && transport_->peer_left()) on_client_end(true);
}

std::optional<Connection::Clock::time_point> Connection::rests_since() const {
  if (phase_ != Phase::opening && phase_ != Phase::idle && phase_ != Phase::headers) return std::nullopt;
  return rests_since_;
}

void Connection::drain() {
  if (phase_ == Phase::idle && request_ > 0) close();  // a first request, still to come, would get the answer that the server stops
}

void Connection::abandon(bool by_server) {
  if (const auto responder = responder_.lock()) responder->abandon(by_server);
}

void Connection::close(bool by_server) {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::answering) answer_.record(!by_server || client_ended_);
  phase_ = Phase::closed;
  reader_.reset();  // with its body, of which the lease tells
  lease_.reset();
  answer_.count_held(true);
  transport_->close();
  shared_->state->connections.fetch_sub(1, std::memory_order_relaxed);
  shared_->connections.erase(shared_from_this());
}

void Connection::deliver(OutboxItem& item) {
  if (phase_ != Phase::answering || item.request != request_ || answer_.ended()) return;
  const bool streaming = answer_.streaming();
  switch (item.kind) {
    case OutboxItem::Kind::send:
      if (!streaming) answer_.send(std::move(*item.response));
      return;
    case OutboxItem::Kind::begin_stream:
      if (!streaming) answer_.begin_stream(item.data);
      return;
    case OutboxItem::Kind::stream:
      if (!streaming || answer_.stream(item.data)) return;
      abandon();
      return close();
    case OutboxItem::Kind::end_stream:
      if (streaming) answer_.end_stream();
      return;
    case OutboxItem::Kind::dropped:
      if (streaming) return close();  // without the last chunk, so that the client sees that the stream was cut
      return answer_.send(shared_->api->error_response(500, "the request was dropped without an answer"));
  }
}

void Connection::flush() {
  while (phase_ != Phase::closed && !answer_.writing()) {
    const std::string_view block = answer_.next_block();
    if (block.empty()) {
      if (answer_.ended() && phase_ == Phase::answering) finish_answer();
      break;
    }
    if (transport_->write(block, shared_from_this())) {
      answer_.written();
    } else {
      answer_.waits();
      if (phase_ == Phase::answering) deadline_.set(shared_->options.write_seconds);
    }
  }
  if (phase_ != Phase::closed) answer_.count_held();
  if (shared_->held_bytes > static_cast<std::size_t>(shared_->options.max_held_bytes)) shared_->bound_held_bytes();
}

void Connection::on_written(const error_code& fault) {
  answer_.written();
  if (phase_ == Phase::closed) return;
  if (fault) {
    abandon();
    return close();
  }
  if (phase_ == Phase::answering) deadline_.set(client_ended_ ? kEndSeconds : 0);
  flush();
}

void Connection::finish_answer() {
  answer_.record(client_ended_);
  if (answer_.asked().keep_alive && !(shared_->state->draining && input_.empty())) return next_request();
  if (!input_.empty() || (reader_ && reader_->state() != RequestReader::State::done) || transport_->must_linger()) {
    // The answer is sent. Closing with unread bytes of the client would reset the connection and lose it, so they are read first.
    phase_ = Phase::lingering;
    deadline_.set(kLingerSeconds);
    transport_->end_writing(shared_from_this());
    input_.clear();
    if (client_ended_) return close();
    return read();
  }
  close();
}

void Connection::on_deadline() {
  if (phase_ == Phase::headers || phase_ == Phase::body)
    return refuse(shared_->api->error_response(
        408, fmt::format("the request's {} did not arrive within {} seconds", phase_ == Phase::headers ? "headers" : "body", deadline_.seconds())));
  if (phase_ == Phase::answering) {
    log_debug("a client takes no bytes; it is closed");
    abandon();
  }
  close();
}

}  // namespace lockstep
