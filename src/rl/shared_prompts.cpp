#include "rl/shared_prompts.h"

#include "base/error.h"
#include "rl/trajectory/play.h"

namespace lockstep {

PromptRows prompt_rows(const RlSettings& settings, const std::vector<std::int64_t>& prompts) {
  PromptRows rows;
  for (const std::int64_t prompt : prompts) {
    rows.all += settings.rollouts * (prompt - 1 + settings.max_tokens);
    if (prompt >= settings.share_prompts_from) rows.saved += (settings.rollouts - 1) * (prompt - 1);
  }
  return rows;
}

SharePrompts sharing_of(const RlSettings& settings, const Environment& environment, const Tokenizer& tokenizer) {
  const SharePrompts asked = share_prompts_by_name(settings.share_prompts);
  if (asked != SharePrompts::automatic) return asked;
  if (environment.many_turns()) return SharePrompts::forward;
  std::vector<std::int64_t> prompts;
  for (std::int64_t i = 0; i < settings.problems; ++i) {
    const Problem problem = environment.problem(Split::train, settings.seed, static_cast<std::uint64_t>(i));
    prompts.push_back(std::ssize(Play(environment, problem, tokenizer, {}).prompt()));
  }
  return prompt_rows(settings, prompts).share() >= kLeastSavedRows ? SharePrompts::backward : SharePrompts::forward;
}

void check_sharing(SharePrompts sharing, const RlSettings& settings, std::int64_t micro_batch) {
  if (sharing != SharePrompts::backward || micro_batch == 0 || micro_batch >= settings.rollouts) return;
  fail(ErrorCode::invalid_argument,
       "micro_batch is {}, and the {} rollouts of a problem share its prompt in the backward, in one; allowed is {} or more, 0, or share_prompts forward",
       micro_batch, settings.rollouts, settings.rollouts);
}

}  // namespace lockstep
