// What tests of the API need: a responder that keeps what it is told, the parts of a stream, a model folder that can chat.
// Tests only.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "api/json_fields.h"
#include "api/routes.h"

namespace lockstep {

// Keeps what it is told.
class Recorder : public Responder {
 public:
  void send(ApiResponse response) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(done_);
    response_ = std::move(response);
    end();
  }
  void begin_stream(std::string_view content_type) override {
    const std::lock_guard lock(mutex_);
    response_.content_type = content_type;
    streamed_ = true;
  }
  void stream(std::string data) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(streamed_ && !done_);
    response_.body += data;
    changed_.notify_all();
  }
  void end_stream() override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(streamed_ && !done_);
    end();
  }
  void on_abandoned(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!abandoned_) {
        abandon_ = std::move(callback);
        return;
      }
    }
    callback();
  }
  void abandon() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = true;
      callback.swap(abandon_);
    }
    if (callback) callback();
  }
  std::size_t pending_bytes() const override { return pending_; }
  void lag(std::size_t bytes) { pending_ = bytes; }
  // Until something of a stream, or the answer, is there.
  void wait_begun() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return done_ || !response_.body.empty(); }));
  }
  // Until `text` stands so often in what came of a stream, or its end; all of that.
  std::string wait_for(const std::string& text, std::size_t times = 1) {
    std::unique_lock lock(mutex_);
    const auto count = [&] {
      std::size_t found = 0;
      for (std::size_t at = response_.body.find(text); at != std::string::npos; at = response_.body.find(text, at + 1)) ++found;
      return found;
    };
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return done_ || count() >= times; }));
    EXPECT_GE(count(), times) << response_.body;
    return response_.body;
  }
  const ApiResponse& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return done_; }));
    return response_;
  }
  bool told() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  Json json() { return Json::parse(std::string(wait().bytes())); }

 private:
  void end() {
    done_ = true;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  ApiResponse response_;
  std::atomic<std::size_t> pending_{0};
  bool done_ = false, streamed_ = false, abandoned_ = false;
  std::function<void()> abandon_;
};

// The JSON of each event of a stream that ends with [DONE], which is checked and left out.
inline std::vector<Json> stream_parts(const std::string& body) {
  std::vector<Json> parts;
  bool done = false;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_FALSE(done);
    if (event == "data: [DONE]") done = true;
    else parts.push_back(Json::parse(event.substr(6)));
  }
  EXPECT_TRUE(done);
  return parts;
}

// The JSON of each event of a response's stream.
inline std::vector<Json> typed_events_of(const std::string& body) {
  std::vector<Json> events;
  for (std::size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at + 6))
    events.push_back(Json::parse(body.substr(at + 6, body.find('\n', at) - at - 6)));
  return events;
}

// The shipped model with a chat template of GLM's kind, in a folder that goes with this object.
class ChatFolder {
 public:
  ChatFolder() : path_(std::filesystem::temp_directory_path() / ("lockstep-chat-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
    for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/models/countdown-glm"))
      std::filesystem::copy_file(entry.path(), path_ / entry.path().filename(), std::filesystem::copy_options::overwrite_existing);
    std::ofstream(path_ / "chat_template.jinja")
        << R"([gMASK]{% if tools %}tools: {% for tool in tools %}{{ tool.function.name }} <tool_call><arg_key><arg_value> {% endfor %}{% endif %})"
        << R"({% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %})"
        << R"({% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %})"
        << R"({% if add_generation_prompt %}<|assistant|>{% if enable_thinking %}<think>{% endif %}{% endif %})";
  }
  ~ChatFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep
