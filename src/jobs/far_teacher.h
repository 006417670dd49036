// A teacher on another server: any OpenAI-compatible /v1/completions that answers `echo` with `logprobs`, or vLLM's `prompt_logprobs`. It is only
// asked for the log-probabilities of tokens that the student wrote.
//   FarTeacher teacher(settings, tokenizer, stop);
//   for (const FarAnswer& a : teacher.ask(texts)) if (a.failure.empty()) use(a.answer);
// A teacher with the student's tokenizer gets token ids. Another gets text, and its log-probabilities are assigned to the student's tokens where
// tokens of both end at the same character (jobs/text_alignment.h). Many texts are sent at once. One thread calls.
#pragma once
#include <memory>

#include "base/stop_token.h"
#include "runs/distillation/teachers.h"
#include "sync/transfer.h"

namespace lockstep {

struct FarAnswer {
  TeacherAnswer answer;   // of Teachers::kSampled; TeacherAnswer::group says which tokens were judged together
  std::string failure;    // why there is no answer after all tries; empty: there is one
  bool for_good = false;  // asking again would fail in the same way
};

class FarTeacher {
 public:
  // settings.url is not empty. Errors: invalid_argument for an invalid address.
  FarTeacher(const TeacherSettings& settings, const Tokenizer& tokenizer, StopToken stop);
  // Asks about all texts, with retries. Errors: cancelled; invalid_argument for an answer that a retry would not change: a status such as 400, 401 or
  // 404, no log-probabilities, other tokens than were sent.
  std::vector<FarAnswer> ask(const std::vector<TeacherText>& texts) const;

 private:
  FarAnswer ask_one(const TeacherText& text) const;

  TeacherSettings settings_;
  const Tokenizer& tokenizer_;
  StopToken stop_;
  std::unique_ptr<const Transfer> transfer_;
};

// Reads an answer for a text, which was sent as token ids (`ids`) or as text. Errors: invalid_argument for what is no such answer; corrupt_file if
// its tokens do not spell this text.
TeacherAnswer read_far_answer(const std::string& body, const TeacherText& text, const Tokenizer& tokenizer, bool ids, bool prompt_logprobs);

}  // namespace lockstep
