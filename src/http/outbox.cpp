#include "http/outbox.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "base/burst.h"
#include "base/log.h"
#include "http/connection.h"

namespace lockstep {

void Outbox::push(OutboxItem item) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    items_.push_back(std::move(item));
    if (std::exchange(woken_, true)) return;
  }
  const auto wake = [self = shared_from_this()] {
    if (const auto io = self->io_.lock()) boost::asio::post(*io, [self] { self->deliver(); });
  };
  if (!Burst::put_off(this, wake)) wake();
}

void Outbox::close() {
  std::vector<OutboxItem> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(items_);
}

void Outbox::deliver() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    delivered_.swap(items_);
  }
  for (OutboxItem& item : delivered_) {
    Connection& connection = *item.connection;
    guarded(connection, [&] { connection.deliver(item); });
  }
  for (OutboxItem& item : delivered_) guarded(*item.connection, [&] { item.connection->flush(); });
  delivered_.clear();
}

// Out of memory, for example: this connection ends, the others go on.
void Outbox::guarded(Connection& connection, const std::function<void()>& work) {
  try {
    return work();
  } catch (const std::exception& e) {
    log_error("an answer could not be written", {{"reason", e.what()}});
  }
  try {
    connection.abandon();
    connection.close();
  } catch (const std::exception& e) {
    log_error("a connection could not be closed", {{"reason", e.what()}});
  }
}

HttpResponder::HttpResponder(std::weak_ptr<Outbox> outbox, std::weak_ptr<Connection> connection, std::uint64_t request)
    : outbox_(std::move(outbox)), connection_(std::move(connection)), request_(request) {}

HttpResponder::~HttpResponder() {
  if (!ended_) push(OutboxItem::Kind::dropped);
}

void HttpResponder::push(OutboxItem::Kind kind, std::string data, std::unique_ptr<ApiResponse> response) {
  const auto outbox = outbox_.lock();
  auto connection = connection_.lock();
  if (outbox && connection) outbox->push({std::move(connection), request_, kind, std::move(data), std::move(response)});
}

void HttpResponder::send(ApiResponse response) {
  end();
  push(OutboxItem::Kind::send, {}, std::make_unique<ApiResponse>(std::move(response)));
}
void HttpResponder::begin_stream(std::string_view content_type) { push(OutboxItem::Kind::begin_stream, std::string(content_type)); }
void HttpResponder::stream(std::string data) {
  pending_->fetch_add(data.size(), std::memory_order_relaxed);
  push(OutboxItem::Kind::stream, std::move(data));
}
void HttpResponder::end_stream() {
  end();
  push(OutboxItem::Kind::end_stream);
}

void HttpResponder::on_abandoned(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!abandoned_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

void HttpResponder::abandon(bool by_server) {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    if (!abandoned_) by_server_ = by_server;
    abandoned_ = true;
    callback.swap(callback_);
  }
  if (callback) callback();
}

void HttpResponder::end() {
  std::function<void()> callback;
  const std::lock_guard lock(mutex_);
  ended_ = true;
  callback.swap(callback_);
}

}  // namespace lockstep
