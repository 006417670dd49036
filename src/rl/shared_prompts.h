// The rule of share_prompts "auto": rollouts of one prompt share it in the backward when that saves enough rows. It depends on settings, environment
// and tokenizer alone, never on memory, threads, micro-batches or measurements, since it decides bits.
//   const SharePrompts chosen = sharing_of(settings, environment, tokenizer);
#pragma once
#include "rl/environment.h"
#include "rl/settings.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// Rows of a step's training sequences if every answer has max_tokens. `prompts`: tokens of each problem's prompt; the last one has a target, so each
// rollout has its own row of it. Prompts below settings.share_prompts_from tokens save nothing.
PromptRows prompt_rows(const RlSettings& settings, const std::vector<std::int64_t>& prompts);

// What settings.share_prompts says; "auto" means backward if that saves at least kLeastSavedRows of the rows of the first step's problems, else
// forward. In a task of many turns, whose rows are not known beforehand, forward. Errors: those of Environment::problem.
SharePrompts sharing_of(const RlSettings& settings, const Environment& environment, const Tokenizer& tokenizer);

// The rollouts of a problem that share its prompt in the backward are in one micro-batch. invalid_argument where they do not fit into one, which the
// first step would find after it has sampled. `sharing`: what was chosen, or asked for; micro_batch 0: there is one.
void check_sharing(SharePrompts sharing, const RlSettings& settings, std::int64_t micro_batch);

}  // namespace lockstep
