#include "text/tokenizer/aligned_text.h"

#include <utility>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
}  // namespace

TextRange TextPiece::origin(std::size_t begin, std::size_t end) const {
  if (origins) return begin < end ? TextRange{origins[begin].begin, origins[end - 1].end} : TextRange{at, at};
  while (begin > 0 && begin < text.size() && continues(text[begin])) --begin;
  while (end < text.size() && continues(text[end])) ++end;
  return {at + begin, at + end};
}

AlignedText AlignedText::of(const TextPiece& piece, bool tracked) {
  AlignedText result{std::string(piece.text), {}, tracked};
  if (!tracked) return result;
  if (piece.origins) {
    result.origins.assign(piece.origins, piece.origins + piece.text.size());
    return result;
  }
  result.origins.reserve(piece.text.size());
  for (std::size_t i = 0; i < piece.text.size();) {
    const std::size_t bytes = utf8_front(piece.text.substr(i)).bytes;
    result.origins.insert(result.origins.end(), bytes, {piece.at + i, piece.at + i + bytes});
    i += bytes;
  }
  return result;
}

void AlignedText::prepend(std::string_view front) {
  if (text.empty()) return;
  if (tracked) origins.insert(origins.begin(), front.size(), TextRange(origins.front()));
  text.insert(0, front);
}

void AlignedText::replace(std::span<const TextRange> matches, std::string_view content) {
  if (matches.empty()) return;
  if (content.size() > 0 && matches.size() > most / content.size())
    fail(ErrorCode::resource_exhausted, "the normalizer makes more than {} bytes of a text; that is the limit", most);
  std::string changed;
  std::vector<TextRange> changed_origins;
  std::size_t at = 0;
  const auto copy = [&](std::size_t end) {
    changed.append(text, at, end - at);
    if (tracked) {
      changed_origins.insert(changed_origins.end(), origins.begin() + static_cast<std::ptrdiff_t>(at), origins.begin() + static_cast<std::ptrdiff_t>(end));
    }
  };
  for (const TextRange& match : matches) {
    copy(match.begin);
    changed += content;
    if (tracked) {
      changed_origins.insert(changed_origins.end(), content.size(), match.end > 0 ? origins[match.end - 1] : TextRange{0, 0});
    }
    at = match.end;
  }
  copy(text.size());
  text = std::move(changed);
  origins = std::move(changed_origins);
}

void AlignedText::transform(std::span<const CharacterChange> changes, std::size_t skipped) {
  std::string changed;
  std::vector<TextRange> changed_origins;
  std::size_t offset = 0;
  const auto drop = [&](std::size_t characters) {
    while (characters-- > 0 && offset < text.size()) offset += utf8_front(std::string_view(text).substr(offset)).bytes;
  };
  drop(skipped);
  for (const CharacterChange& c : changes) {
    const std::size_t before = changed.size();
    utf8_append(changed, c.codepoint);
    if (!tracked) continue;
    TextRange origin{0, 0};
    if (c.change > 0) {
      if (offset > 0) origin = origins[offset - 1];
    } else {
      origin = offset < origins.size() ? origins[offset] : origins.back();
      drop(1 + static_cast<std::size_t>(-c.change));
    }
    changed_origins.insert(changed_origins.end(), changed.size() - before, origin);
  }
  text = std::move(changed);
  origins = std::move(changed_origins);
}

TextPiece PieceArena::keep(AlignedText&& changed, std::size_t at) {
  const AlignedText& kept = kept_.emplace_back(std::move(changed));
  if (!kept.tracked || kept.text.empty()) return {kept.text, at, nullptr};
  return {kept.text, kept.origins.front().begin, kept.origins.data()};
}

}  // namespace lockstep
