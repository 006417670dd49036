// The interface of a source of drafts: one way to guess a request's next tokens. Each request has its own sources; what sources share (texts of the
// same prompt) they get when they are made. A wrong guess costs only time. Used by one thread at a time.
//   source->propose({.text = tokens, .prompt_length = n, .most = 5}, out);
#pragma once
#include <memory>

#include "engine/drafts/draft_options.h"

namespace lockstep {

class SiblingTexts;

// The input of a source: the text so far.
struct DraftPlace {
  std::span<const std::int32_t> text;  // prompt and generated tokens; shorter than at the last call when tokens were taken back
  std::int64_t prompt_length = 0;
  std::span<const std::int32_t> draft = {};  // draft tokens of other sources behind the text
  std::int64_t most = 0;
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Appends at most place.most tokens that may follow the draft.
  virtual void propose(const DraftPlace& place, std::vector<std::int32_t>& out) = 0;
  // The request has ended with this text.
  virtual void end(const DraftPlace&) {}
};

// What the sources of a request are made from.
struct DraftMaterial {
  std::span<const std::int32_t> prompt;
  std::uint64_t owner = 0;               // the owner whose texts it may use (Request::prefix_owner)
  std::vector<std::int32_t> prediction;  // the expected answer
  DraftScript script;
  SiblingTexts* siblings = nullptr;
  const std::vector<std::int32_t>* layer_says = nullptr;  // Drafting::layer_says, in a model with a layer of multi-token prediction
};

// A source's row. `make` null: its drafts come from the request's constraint (engine/drafts/drafter.h); null from make(): no draft is possible.
struct DraftSourceRow {
  DraftKind kind;
  const char* name;
  std::unique_ptr<DraftSource> (*make)(DraftMaterial& material);
  bool for_tests = false;
};
std::span<const DraftSourceRow> draft_sources();

}  // namespace lockstep
