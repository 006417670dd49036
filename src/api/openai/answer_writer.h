// Writes answers as JSON text: events of a stream and whole answers. What stays the same over a stream is made once. The two
// APIs differ in the frame's name and in how a choice looks; the rest is here.
// Knows no service and no responder. One answer, one thread.
//   writer->set_head(head); writer->append_part(out, index, delta, true, prompt); ...  whole = writer->whole(choices, usage);
#pragma once
#include <memory>

#include "api/openai/answer.h"

namespace lockstep {

// What an answer shows beyond its text.
struct AnswerShape {
  bool logprobs = false;           // and sampling_logprobs
  bool top_logprobs = false;
  bool token_ids = false;
  bool prompt_token_ids = false;
  bool usage_in_parts = false;     // "usage": null in each part but the last
};

class AnswerWriter {
 public:
  // `tokenizer` outlives this object. `prompts`: the prompt's ids of choice i are prompts[i / choices_a_prompt].
  AnswerWriter(const Tokenizer& tokenizer, const AnswerShape& shape) : tokenizer_(tokenizer), shape_(shape) {}
  virtual ~AnswerWriter() = default;

  virtual std::string_view id_prefix() const = 0;
  // Before anything else, and again when it changes.
  virtual void set_head(const AnswerHead& head);
  // Events of a stream, as server-sent events: what choice `index` gained; the end of all choices; what went wrong on the way.
  // `prompt`: the ids of the choice's prompt, shown in its first part alone.
  virtual void append_event(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt);
  virtual void append_end(std::string& out, const AnswerUsage& usage);
  virtual void append_failure(std::string& out, const Error& error);
  void append_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt);
  // The last part of a stream that was asked for it.
  void append_usage_part(std::string& out, const AnswerUsage& usage);
  struct WholeChoice {
    const ChoiceDelta* delta;
    const std::vector<std::int32_t>* prompt;
  };
  virtual std::string whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage);

 protected:
  virtual std::string_view object(bool part) const = 0;
  virtual void append_choice_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) const = 0;
  virtual void append_choice(std::string& out, std::size_t index, const ChoiceDelta& delta, const std::vector<std::int32_t>& prompt) const = 0;
  // Fields of the frame that stand behind the choices: "," first.
  virtual void append_frame_end(std::string&, const std::vector<std::int32_t>*) const {}

  // ,"finish_reason":"stop" and, where asked for, ,"token_ids":[..],"sampling_logprobs":[..]
  void append_choice_end(std::string& out, const ChoiceDelta& delta) const;
  static void append_ids(std::string& out, const std::vector<std::int32_t>& ids);
  const Tokenizer& tokenizer_;
  AnswerShape shape_;

 private:
  void append_usage(std::string& out, const AnswerUsage& usage) const;
  std::string frame_[2];  // everything before the choices: of a whole answer, of a part
};

class CompletionWriter : public AnswerWriter {
 public:
  using AnswerWriter::AnswerWriter;
  std::string_view id_prefix() const override { return "cmpl-"; }

 protected:
  std::string_view object(bool) const override { return "text_completion"; }
  void append_choice_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) const override;
  void append_choice(std::string& out, std::size_t index, const ChoiceDelta& delta, const std::vector<std::int32_t>& prompt) const override;

 private:
  void append_logprobs(std::string& out, const ChoiceDelta& delta) const;
};

class ChatWriter : public AnswerWriter {
 public:
  using AnswerWriter::AnswerWriter;
  std::string_view id_prefix() const override { return "chatcmpl-"; }

 protected:
  std::string_view object(bool part) const override { return part ? "chat.completion.chunk" : "chat.completion"; }
  void append_choice_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) const override;
  void append_choice(std::string& out, std::size_t index, const ChoiceDelta& delta, const std::vector<std::int32_t>& prompt) const override;
  void append_frame_end(std::string& out, const std::vector<std::int32_t>* prompt) const override;

 private:
  void append_logprobs(std::string& out, const ChoiceDelta& delta) const;
  void append_token(std::string& out, std::int32_t id, double logprob) const;
  void append_tool_calls(std::string& out, const ChoiceDelta& delta, bool part) const;
};

}  // namespace lockstep
