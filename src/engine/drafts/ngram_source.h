// Drafts by repetition: where the last tokens occurred earlier in the request, what followed them there. Good for text that is copied or edited.
//   auto source = make_ngram_source(material); source->propose({.text = tokens, .prompt_length = 3, .most = 5}, out);
#pragma once
#include <memory>

#include "engine/drafts/draft_source.h"

namespace lockstep {

std::unique_ptr<DraftSource> make_ngram_source(DraftMaterial& material);

}  // namespace lockstep
