// A request while it runs: its tokens, the pages of its cache entries, what it generated. Only state; the scheduler and the engine change it.
//   Sequence s; s.tokens = {1, 5, 7}; s.prompt_length = 3;
#pragma once
#include <functional>
#include <limits>

#include "engine/adjustments.h"
#include "engine/drafts/drafting.h"
#include "engine/generation.h"
#include "engine/pace.h"
#include "engine/prefix_cache.h"
#include "engine/request.h"
#include "model/adapter.h"
#include "model/kept_text.h"

namespace lockstep {

// The first positions of a prompt that is scored: their outputs were kept (model/kept_forwards.h), and their entries stand in cached pages.
struct KeptPrompt {
  std::int64_t end = 0;                     // positions [0, end)
  std::vector<KeptForwards::Piece> pieces;  // their rows
};

struct Sequence {
  std::uint64_t id = 0;  // ascending in order of arrival
  SamplingParameters sampling;
  std::vector<std::int32_t> tokens;  // prompt, then generated
  std::int64_t prompt_length = 0;
  std::int64_t said = 0;  // Request::said: of the prompt's last tokens
  Generation generation;
  std::shared_ptr<const WeightSet> weights;       // null: the engine's newest
  std::shared_ptr<const AdapterWeights> adapter;  // null: none
  std::uint64_t prefix_owner = 0;                 // Request::prefix_owner
  std::shared_ptr<ShareAccount> account;          // Request::account
  std::function<void(std::uint64_t, const GeneratedToken&)> on_token;
  std::function<void(Generation&&)> on_done;

  // What restricts or biases its next token:
  LogitAdjustments adjustments;
  std::vector<std::uint32_t> mask;  // of the constraint, for the next token (of several sampled rows: one after another)
  bool mask_ready = false;          // computed once per token, also when a forward is repeated
  std::string constraint_error;     // its exception; the mask is then empty

  std::unique_ptr<Drafting> drafting;  // null: no speculation. While a step runs, or it is under way, `tokens` ends with the draft

  // In the cache:
  std::vector<std::int32_t> pages;
  std::int64_t computed = 0;    // positions whose entries are in pages; of a kept prompt those that have been read
  std::int64_t begin = 0;       // of them from the prefix cache, when it was admitted
  PrefixCache::Chain chain;     // as far as its pages are in the prefix cache
  bool shares = true;           // its further full pages may enter the prefix cache
  bool mixed_versions = false;  // entries under several weights versions
  bool running = false;
  bool admitted = false;   // at least once
  bool under_way = false;  // in a plan that has not been through all stages (engine/plans_under_way.h): its tokens, pages and `computed` stay as they are
  // Where its text was cut back while it was under way (a cancelled one's at 0). Without stages no row from there on would have run, so those say nothing of
  // it, and what is sampled for it is not taken.
  static constexpr std::int64_t kNotCut = std::numeric_limits<std::int64_t>::max();
  std::int64_t cut = kNotCut;

  bool scores_prompt = false;                // log-probabilities of the prompt are collected
  bool reads_kept = false;                   // of a prompt that is scored: rows that were kept are read
  KeptPrompt kept_prompt;                    // those that were found when it was admitted, until they have been read
  std::vector<std::int32_t> prompt_targets;  // Request::prompt_targets
  std::int64_t prompt_targets_per_row = 0, prompt_draws = 0;
  bool tells_experts = false;                     // Request::experts
  bool tells_kept = false;                        // Request::kept_tokens, where something may cut tokens
  std::vector<std::int32_t> given;                // Request::given
  bool keeps_forward = false;                     // Request::keep_forward, where the engine may
  std::unique_ptr<KeptText> kept_text = nullptr;  // where its rows go; null: none has come
  Pooling pooling = Pooling::none;
  std::vector<double> pooled_sum;     // [hidden]: position after position, in ascending order
  std::int64_t pooled_positions = 0;  // that stand in it; after a preemption they come again, and are not added again
  Pace pace;

  // The model's layer is to guess what follows, for a cycle of rejection sampling: it needs the state before the last token, which stands alone in a
  // forward then.
  bool begins_layer_cycle() const { return drafting && drafting->rejects && !drafting->in_cycle && drafting->options.has(DraftKind::mtp); }
  // Tokens of the prompt, and those that were taken as generated.
  std::int64_t accepted() const { return prompt_length + static_cast<std::int64_t>(generation.tokens.size()); }
  // Where the answer begins, and its tokens until now.
  std::int64_t answer_begin() const { return prompt_length - said; }
  std::int64_t answered() const { return accepted() - answer_begin(); }
  // The token that is taken at this position in place of a drawn one; -1: none.
  std::int32_t given_at(std::int64_t position) const {
    const std::int64_t i = position - prompt_length;
    return i >= 0 && i < std::ssize(given) ? given[static_cast<std::size_t>(i)] : -1;
  }
  std::int64_t known() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t pending() const { return known() - computed; }
  // Whether its next rows are read.
  bool next_is_kept() const { return computed < kept_prompt.end; }
};

}  // namespace lockstep
