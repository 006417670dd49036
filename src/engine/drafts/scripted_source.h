// Drafts that a test dictates (Request::draft_script): right, wrong or random ones.
//   auto source = make_scripted_source(material); source->propose({.text = tokens, .prompt_length = 3, .most = 5}, out);
#pragma once
#include <memory>

#include "engine/drafts/draft_source.h"

namespace lockstep {

std::unique_ptr<DraftSource> make_scripted_source(DraftMaterial& material);

}  // namespace lockstep
