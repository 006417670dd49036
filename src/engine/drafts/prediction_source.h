// Drafts from a text that the request brought as its expected answer (Request::prediction). Follows it while the answer agrees; after a difference it
// continues where the last tokens of the answer occur in it again.
//   auto source = make_prediction_source(material); source->propose({.text = tokens, .prompt_length = 3, .most = 5}, out);
#pragma once
#include <memory>

#include "engine/drafts/draft_source.h"

namespace lockstep {

std::unique_ptr<DraftSource> make_prediction_source(DraftMaterial& material);

}  // namespace lockstep
