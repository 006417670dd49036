// A queue from Api threads to the io thread, one per server. A burst of tokens for many streams wakes
// the io thread once, and each connection writes once. Internal to http/.
//   outbox->push({connection, request, OutboxItem::Kind::stream, data});
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/exchange.h"
#include "http/transport.h"

namespace boost::asio {
class io_context;
}

namespace lockstep {

class Connection;

struct OutboxItem {
  enum class Kind { send, begin_stream, stream, end_stream, dropped };
  std::shared_ptr<Connection> connection;
  std::uint64_t request = 0;
  Kind kind = Kind::send;
  std::string data = {};
  std::unique_ptr<ApiResponse> response = nullptr;  // of send
};

class Outbox : public std::enable_shared_from_this<Outbox> {
 public:
  explicit Outbox(std::weak_ptr<boost::asio::io_context> io) : io_(std::move(io)) {}
  void push(OutboxItem item);
  // Drops what is queued, and all that comes later: the server is gone.
  void close();

 private:
  void deliver();
  static void guarded(Connection& connection, const std::function<void()>& work);

  std::weak_ptr<boost::asio::io_context> io_;
  std::mutex mutex_;
  std::vector<OutboxItem> items_;
  bool woken_ = false, closed_ = false;
  std::vector<OutboxItem> delivered_;  // io thread's
};

// The Api's end of one request; may outlive connection and server.
class HttpResponder : public Responder {
 public:
  HttpResponder(std::weak_ptr<Outbox> outbox, std::weak_ptr<Connection> connection, std::uint64_t request);
  ~HttpResponder() override;
  void send(ApiResponse response) override;
  void begin_stream(std::string_view content_type) override;
  void stream(std::string data) override;
  void end_stream() override;
  void on_abandoned(std::function<void()> callback) override;
  std::size_t pending_bytes() const override { return pending_->load(std::memory_order_relaxed); }

  bool abandoned_by_server() const override { return by_server_; }

  // For the connection: nobody waits for the answer any more. The first call's reason (`by_server`) counts.
  void abandon(bool by_server = false);
  const std::shared_ptr<std::atomic<std::size_t>>& pending() const { return pending_; }

 private:
  void push(OutboxItem::Kind kind, std::string data = {}, std::unique_ptr<ApiResponse> response = nullptr);
  void end();

  std::weak_ptr<Outbox> outbox_;
  std::weak_ptr<Connection> connection_;
  std::uint64_t request_;
  std::shared_ptr<std::atomic<std::size_t>> pending_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::mutex mutex_;
  std::function<void()> callback_;
  bool abandoned_ = false, ended_ = false;
  std::atomic<bool> by_server_ = false;
};

}  // namespace lockstep
