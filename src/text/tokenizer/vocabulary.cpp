#include "text/tokenizer/vocabulary.h"

#include "base/hash.h"

namespace lockstep {

Vocabulary::Vocabulary() : slots_(64) {}

bool Vocabulary::add(std::string_view text, std::int32_t id) {
  if (!text_of(id).empty() || id_of(text) != kNone) return false;
  if (id >= id_limit()) spans_.resize(static_cast<std::size_t>(id) + 1);
  spans_[static_cast<std::size_t>(id)] = {texts_.size(), static_cast<std::uint32_t>(text.size())};
  texts_ += text;
  ++size_;
  if (static_cast<std::size_t>(size_) * 2 > slots_.size()) grow();
  else place(text, id);
  return true;
}

std::int32_t Vocabulary::id_of(std::string_view text) const {
  const std::uint64_t hash = xxh3(text.data(), text.size());
  for (std::size_t i = hash >> 32;; ++i) {
    const Slot& slot = slots_[i & (slots_.size() - 1)];
    if (slot.id == kNone) return kNone;
    if (slot.tag == static_cast<std::uint32_t>(hash) && text_of(slot.id) == text) return slot.id;
  }
}

void Vocabulary::place(std::string_view text, std::int32_t id) {
  const std::uint64_t hash = xxh3(text.data(), text.size());
  std::size_t i = hash >> 32;
  while (slots_[i & (slots_.size() - 1)].id != kNone) ++i;
  slots_[i & (slots_.size() - 1)] = {static_cast<std::uint32_t>(hash), id};
}

void Vocabulary::grow() {
  slots_.assign(slots_.size() * 2, Slot{});
  for (std::int32_t id = 0; id < id_limit(); ++id) {
    if (const std::string_view text = text_of(id); !text.empty()) place(text, id);
  }
}

}  // namespace lockstep
