// Drafts by the model's layer of multi-token prediction (engine/drafts/mtp_steps.h). The layer runs once for all requests of a step, before the
// sources of any are called; this source returns its tokens.
//   auto source = make_mtp_source(material); source->propose({.text = tokens, .prompt_length = 3, .most = 5}, out);
#pragma once
#include <memory>

#include "engine/drafts/draft_source.h"

namespace lockstep {

std::unique_ptr<DraftSource> make_mtp_source(DraftMaterial& material);

}  // namespace lockstep
