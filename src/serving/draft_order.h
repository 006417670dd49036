// The drafts that a request asks for, as its wire spelled them; the service turns them into the engine's DraftOptions. Plain values.
//   request.drafts = order.drafts.options(usual);
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/drafts/draft_options.h"
#include "engine/request.h"

namespace lockstep {

struct DraftOrder {
  std::optional<std::string> mode;                          // of parse_drafts(); none: the service's
  std::optional<std::int64_t> tokens;                       // none: the service's
  std::optional<DraftOptions::Acceptance> acceptance = {};  // none: the service's
  std::optional<std::string> text;                          // what the answer may be,
  std::vector<std::int32_t> ids;                            // or its tokens,
  std::string ids_field = "speculative.draft";              // as the wire calls them

  bool predicts() const { return text.has_value() || !ids.empty(); }
  // Of a request's own copy, at most.
  std::size_t bytes() const { return std::min(text ? text->size() : ids.size(), Request::kMaxPrediction) * sizeof(std::int32_t); }
  DraftOptions options(const DraftOptions& usual) const {
    DraftOptions options = usual;
    if (tokens) options.tokens = *tokens;
    if (mode) options = parse_drafts(*mode, options.tokens);
    options.acceptance = acceptance.value_or(usual.acceptance);
    return options;
  }
};

}  // namespace lockstep
