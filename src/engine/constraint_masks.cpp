#include "engine/constraint_masks.h"

#include <bit>
#include <exception>

namespace lockstep {

namespace {
std::size_t mask_words(std::int64_t vocabulary) { return static_cast<std::size_t>((vocabulary + 31) / 32); }
}  // namespace

void ask_mask(Sequence& s, std::int64_t vocabulary) {
  const std::size_t words = mask_words(vocabulary);
  if (s.mask_ready) return s.mask.resize(words);
  s.mask.assign(words, 0);
  s.mask_ready = true;
  try {
    s.sampling.constraint->allowed(s.mask);
  } catch (const std::exception& e) {
    s.mask.assign(words, 0);
    s.constraint_error = e.what();
  }
}

MasksAhead::MasksAhead(Sequence& s, std::int64_t vocabulary) : sequence_(s), words_(mask_words(vocabulary)) {
  if (s.sampling.constraint) ask_mask(s, vocabulary);
}

MasksAhead::~MasksAhead() {
  if (!moved_) return;
  try {
    sequence_.sampling.constraint->truncate(sequence_.answered());
  } catch (const std::exception& e) {  // then it cannot go on
    sequence_.mask.assign(sequence_.mask.size(), 0);
    sequence_.constraint_error = e.what();
  }
}

bool MasksAhead::allows(std::int32_t token) const {
  return !sequence_.sampling.constraint || (last_mask()[static_cast<std::size_t>(token / 32)] >> (token % 32) & 1) != 0;
}

std::int32_t MasksAhead::only_token() const {
  if (!sequence_.sampling.constraint) return -1;
  std::int32_t only = -1;
  const std::span<const std::uint32_t> mask = last_mask();
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    if (only >= 0 || !std::has_single_bit(mask[i])) return -1;
    only = static_cast<std::int32_t>(i * 32) + std::countr_zero(mask[i]);
  }
  return only;
}

bool MasksAhead::accept(std::int32_t token) {
  if (!sequence_.sampling.constraint) return true;
  TokenConstraint& constraint = *sequence_.sampling.constraint;
  std::vector<std::uint32_t>& masks = sequence_.mask;
  const std::size_t before = masks.size();
  try {
    if (!moved_) constraint.settle();
    moved_ = true;
    constraint.accept(token);
    masks.resize(before + words_);
    constraint.allowed(std::span<std::uint32_t>(masks).last(words_));
  } catch (const std::exception&) {  // it will throw again when the token is said, and end the request then
    masks.resize(before);
    return false;
  }
  return true;
}

}  // namespace lockstep
