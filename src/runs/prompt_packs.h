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

// Rows of the first epoch in batches of `batch`, and those that declared prompts of at least `from` tokens save in the backward.
PromptRows packed_rows(const SftSource& source, std::int64_t batch, std::int64_t from);

// What shares a prompt in a batch is in one micro-batch. invalid_argument where a batch of the first epoch has more of one prompt, which its step would
// find; micro_batch 0: there is one.
void check_packs(const SftSource& source, std::int64_t batch, std::int64_t micro_batch);

}  // namespace lockstep
