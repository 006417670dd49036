// Writes an answer of the Responses API: a stream of typed events (response.created ... response.completed), or whole. Both are built the same way:
// reasoning, message and function calls become output items in the order in which they begin. One answer, one thread.
//   ResponseWriter writer(R"("tools":[],"top_p":1)", [&](const std::string& id, const Json& output, const std::string& response) {
//     keep(response); });
#pragma once
#include <functional>
#include <map>

#include "api/json_fields.h"
#include "api/openai/answer_writer.h"

namespace lockstep {

class ResponseWriter : public AnswerWriter {
 public:
  // `ended` is told the whole response, before anybody else: its id, its output, all of it as text.
  using Ended = std::function<void(const std::string& id, const Json& output, const std::string& response)>;
  // `shown`: members of an object, as text: the request's fields, which every response repeats, and which may be long.
  ResponseWriter(std::string shown, Ended ended) : shown_(std::move(shown)), ended_(std::move(ended)) {}

  std::string_view id_prefix() const override { return "resp_"; }
  void set_head(const AnswerHead& head) override;
  void append_event(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) override;
  // An event response.hold, which OpenAI's API has not. After that of a roll-back the output items begin anew, with what stands of the answer.
  void append_hold(std::string& out, std::size_t index, const HoldNotice& hold) override;
  void append_end(std::string& out, const AnswerUsage& usage) override;
  void append_failure(std::string& out, const Error& error) override;
  std::string whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage) override;

 private:
  struct Item {
    enum class Kind { reasoning, message, call } kind;
    Json json;
    std::string text;  // so far: reasoning, the message, a call's arguments
    bool open = true;
  };
  void begin_response(std::string& out);
  void append_delta(std::string& out, const ChoiceDelta& delta);
  void event(std::string& out, std::string_view type, Json fields);
  void text_delta(std::string& out, std::size_t item, std::string_view type, const std::string& text);
  std::size_t begin(std::string& out, Item::Kind kind, Json json);
  void end_item(std::string& out, std::size_t item, bool cut);
  void end_all(std::string& out, bool cut);
  Json output() const;
  std::string response(std::string_view status, Json output) const;
  void response_event(std::string& out, std::string_view type, std::string_view response);

  std::string shown_;
  Ended ended_;
  AnswerHead head_;
  std::string origin_;  // members of every event: of which snapshot its tokens are, and whether weights changed under them
  bool streams_ = true, begun_ = false;
  std::uint64_t sequence_ = 0;
  std::vector<Item> items_;
  std::optional<std::size_t> reasoning_, message_;
  std::map<std::size_t, std::size_t> calls_;  // of the answer -> item
  std::string finish_;
  std::optional<AnswerUsage> usage_;
  Json failure_;
};

}  // namespace lockstep
