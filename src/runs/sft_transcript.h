// A step's sequences as readable JSON: one piece of text per token and, behind the prompt, each token's weight in the loss and its log-probability
// before the step. For transcripts.jsonl of a run. Pure functions.
//   for (auto& line : sft_transcripts(batch, result, tokenizer, step, 4)) log.append(line);
#pragma once
#include "runs/transcript_text.h"
#include "train/data.h"

namespace lockstep {

// Of the first `count` sequences, one JSON object each: step, sequence (its place in the batch), prompt (pieces: what stands before the
// first trained token), prompt_ids, tokens (pieces), ids, logprobs (null where not scored), entropies, weights; "cut" counts tokens
// left out.
std::vector<nlohmann::ordered_json> sft_transcripts(const std::vector<TrainSequence>& batch, const ForwardBackwardResult& result, const Tokenizer& tokenizer,
                                                    std::int64_t step, std::int64_t count);

}  // namespace lockstep
