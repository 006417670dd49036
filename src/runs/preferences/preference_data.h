// Pairs of answers to one prompt, or answers with a label (KTO), from a JSONL file. Only tokens that the assistant wrote in its answer have a weight;
// which these are is proved as for fine-tuning (runs/chat_data.h).
//   const std::vector<PreferenceItem> items = read_preference_file("my.jsonl", chat_data, true, vocabulary, positions);
// Pure functions over one file.
#pragma once
#include "runs/sft_data.h"

namespace lockstep {

struct PreferenceItem {
  TrainSequence chosen;    // or the labelled answer
  TrainSequence rejected;  // labelled: this prompt with the next item's answer, for kto_shift
  bool desirable = true;   // the label
};

// A line is a pair, {"prompt" or "messages", "chosen", "rejected"}, or, where `pairs` is false, an answer {"prompt" or "messages", "completion",
// "label"}; then a pair is two answers. "prompt" is a text, or messages as "messages"; answers are texts, or lists of messages that follow the
// prompt's. Without a prompt chosen and rejected are whole conversations, whose first messages in common are it. Beside messages may stand "tools" and
// "chat_template_kwargs".
// Errors: those of each_json_line and ChatData; corrupt_file for a key, a form, an answer of which no token is trained, a line longer than
// the context; for a file without lines.
std::vector<PreferenceItem> read_preference_file(const std::string& path, const ChatData& data, bool pairs, std::int64_t vocabulary,
                                                 std::int64_t max_positions);
// Identifies the data.
std::string preference_digest(const std::vector<PreferenceItem>& items);

}  // namespace lockstep
