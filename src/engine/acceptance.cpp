#include "engine/acceptance.h"

#include <algorithm>
#include <exception>

#include "base/error.h"

namespace lockstep {

namespace {
// What changes a request's constraint, where it has one; false: it threw.
template <class F>
bool constraint_does(Sequence& s, const F& work) {
  if (!s.sampling.constraint) return true;
  s.mask_ready = false;
  try {
    work(*s.sampling.constraint);
  } catch (const std::exception& e) {
    s.generation.error = fmt::format("the constraint failed at token {}: {}", s.generation.tokens.size(), e.what());
    return false;
  }
  return true;
}
}  // namespace

FinishReason accept_tokens(Sequence& s, std::span<GeneratedToken> tokens) {
  const std::vector<std::int32_t>& stops = s.sampling.stop_tokens;
  for (GeneratedToken& token : tokens) {
    const std::int32_t id = token.id;
    if (!constraint_does(s, [&](TokenConstraint& constraint) { constraint.accept(id); })) return FinishReason::error;
    s.adjustments.accept(id);
    s.tokens.push_back(id);
    s.generation.tokens.push_back(std::move(token));
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) return FinishReason::stop;
    if (static_cast<std::int32_t>(s.generation.tokens.size()) >= s.sampling.max_tokens) return FinishReason::length;
  }
  return FinishReason::none;
}

void replay_tokens(Sequence& s, std::span<const std::int32_t> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    s.adjustments.accept(tokens[i]);
    if (!s.sampling.constraint) continue;
    try {
      s.sampling.constraint->accept(tokens[i]);
    } catch (const std::exception& e) {
      fail(ErrorCode::invalid_argument, "the answer's token {} ({}) is not what its constraint allows: {}", i, tokens[i], e.what());
    }
  }
}

FinishReason truncate_tokens(Sequence& s, std::size_t count) {
  if (!constraint_does(s, [&](TokenConstraint& constraint) { constraint.truncate(s.said + static_cast<std::int64_t>(count)); })) return FinishReason::error;
  const auto length = static_cast<std::size_t>(s.prompt_length) + count;
  s.adjustments.truncate(std::span<const std::int32_t>(s.tokens).subspan(length));
  s.tokens.resize(length);
  s.generation.tokens.resize(count);
  return FinishReason::none;
}

}  // namespace lockstep
