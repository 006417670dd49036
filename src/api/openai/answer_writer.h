// Writes answers as JSON text: events of a stream, and whole answers. AnswerWriter is the interface that AnswerRun uses; ChoicesWriter implements it
// for OpenAI's completions and chat, which differ in the frame's name and in the form of a choice. The constant part of a stream is made once. Knows
// no service and no responder. One answer, one thread.
//   writer->set_head(head); writer->append_event(out, index, delta, true, prompt); ...  whole = writer->whole(choices, usage);
#pragma once
#include <memory>

#include "api/exchange.h"
#include "api/openai/answer.h"

namespace lockstep {

// What an answer shows beyond its text.
struct AnswerShape {
  bool logprobs = false;  // and sampling_logprobs
  bool top_logprobs = false;
  bool token_ids = false;
  bool prompt_token_ids = false;
  bool echo_ids = false;        // token ids of an echoed prompt, also without log-probabilities
  bool text_offsets = false;    // where each token's text begins
  bool usage_in_parts = false;  // "usage": null in each part but the last
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string_view id_prefix() const = 0;
  // Call before anything else, and again when the head changes.
  virtual void set_head(const AnswerHead& head) = 0;
  // Append server-sent events of a stream: a part of choice `index` (append_event), the end of all choices (append_end), an error
  // (append_failure). `prompt`: the ids of the choice's prompt, shown in its first part alone.
  virtual void append_event(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) = 0;
  // Does nothing for a protocol that has no held answers.
  virtual void append_hold(std::string&, std::size_t, const HoldNotice&) {}
  virtual void append_end(std::string& out, const AnswerUsage& usage) = 0;
  virtual void append_failure(std::string& out, const Error& error) = 0;
  struct WholeChoice {
    const ChoiceDelta* delta;
    const std::vector<std::int32_t>* prompt;
  };
  virtual std::string whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage) = 0;
  // Headers of a whole answer; call after whole().
  virtual HeaderList headers() const { return {}; }
};

class ChoicesWriter : public AnswerWriter {
 public:
  // `tokenizer` outlives this object.
  ChoicesWriter(const Tokenizer& tokenizer, const AnswerShape& shape) : tokenizer_(tokenizer), shape_(shape) {}
  void set_head(const AnswerHead& head) override;
  void append_event(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) override;
  void append_hold(std::string& out, std::size_t index, const HoldNotice& hold) override;
  void append_end(std::string& out, const AnswerUsage& usage) override;
  void append_failure(std::string& out, const Error& error) override;
  std::string whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage) override;

 protected:
  virtual std::string_view object(bool part) const = 0;
  virtual void append_choice_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) const = 0;
  virtual void append_choice(std::string& out, std::size_t index, const ChoiceDelta& delta, const std::vector<std::int32_t>& prompt) const = 0;
  // Fields behind the choices, each with a comma before it.
  virtual void append_frame_end(std::string&, const std::vector<std::int32_t>*) const {}

  // ,"finish_reason":"stop" and, where asked for, ,"token_ids":[..],"sampling_logprobs":[..]
  void append_choice_end(std::string& out, const ChoiceDelta& delta) const;
  static void append_ids(std::string& out, const std::vector<std::int32_t>& ids);
  const Tokenizer& tokenizer_;
  AnswerShape shape_;

 private:
  void append_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt);
  void append_usage(std::string& out, const AnswerUsage& usage) const;
  std::string frame_[2];  // everything before the choices: of a whole answer, of a part
};

class CompletionWriter : public ChoicesWriter {
 public:
  using ChoicesWriter::ChoicesWriter;
  std::string_view id_prefix() const override { return "cmpl-"; }

 protected:
  std::string_view object(bool) const override { return "text_completion"; }
  void append_choice_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) const override;
  void append_choice(std::string& out, std::size_t index, const ChoiceDelta& delta, const std::vector<std::int32_t>& prompt) const override;

 private:
  void append_logprobs(std::string& out, const ChoiceDelta& delta) const;
};

class ChatWriter : public ChoicesWriter {
 public:
  using ChoicesWriter::ChoicesWriter;
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
