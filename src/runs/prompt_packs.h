// Groups supervised sequences with the same prompt into packs, in which the prompt is computed once, in the backward too (train/data.h, "declared
// shared prefix"). A prompt is what precedes a sequence's first weighted target. Pure functions.
//   if (packed_rows(source, batch, kSharePromptsFrom).share() >= kLeastSavedRows) train_on(source);
#pragma once
#include "runs/sft_data.h"
#include "runs/share_prompts.h"
#include "train/declared_prompts.h"

namespace lockstep {

// As shuffled_source, but what is shuffled are packs: all sequences of one prompt in the data's order. Every batch has its prompts declared.
std::unique_ptr<SftSource> packed_source(std::vector<TrainSequence> sequences, std::uint64_t seed);

struct PackedRows : PromptRows {
  std::int64_t most_together = 0;  // sequences that share a prompt in a batch
};
// Of the first epoch in batches of `batch`: all rows, those that declared prompts of at least `from` tokens save in the backward, and how many sequences of a
// batch share a prompt of any length. Makes each batch once.
PackedRows packed_rows(const SftSource& source, std::int64_t batch, std::int64_t from);

// What shares a prompt in a batch is in one micro-batch. invalid_argument where a batch has more of one prompt, which its step would find; micro_batch 0:
// there is one.
void check_packs(const PackedRows& rows, std::int64_t micro_batch);

}  // namespace lockstep
