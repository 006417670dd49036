// Where supervised fine-tuning gets its sequences: a JSONL file, or the reference completions of an environment.
// A source is stateless: batch(step) is a function of (source, seed, step), so a run resumes from its step alone.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "train/data.h"

namespace lockstep {

class SftSource {
 public:
  virtual ~SftSource() = default;
  // `count` sequences of step `step`.
  virtual std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const = 0;
};

// A prompt (masked) and a completion with the end token: inputs all but the last token, weight 1 on the completion's targets.
TrainSequence prompt_completion_sequence(const Tokenizer& tokenizer, const std::string& prompt, const std::string& completion, std::int32_t end_token);

// Lines {"prompt","completion"} (text; needs the tokenizer) or {"tokens","weights"} (weights aligned to targets: one fewer than
// tokens). Epochs are shuffled by (seed, epoch). Errors: corrupt_file with the line's number.
std::unique_ptr<SftSource> jsonl_source(const std::string& path, const Tokenizer* tokenizer, std::int32_t end_token, std::uint64_t seed,
                                        std::int64_t vocabulary, std::int64_t max_positions);

}  // namespace lockstep
