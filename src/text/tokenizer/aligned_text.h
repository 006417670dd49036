// A part of a text on its way to tokens, with the input position of each of its bytes: normalizers and
// pre-tokenizers preserve the alignment of Hugging Face's NormalizedString, so that offsets agree.
//   AlignedText t = AlignedText::of(piece, true); t.prepend("_"); TextPiece changed = arena.keep(std::move(t), piece.at);
// Knows no particular normalization. Thread rule: values; the arena belongs to one encoding.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_range.h"

namespace lockstep {

// A view. Without `origins` the text is the input itself from `at` on, or nobody asks for offsets.
struct TextPiece {
  std::string_view text;
  std::size_t at = 0;                  // where it begins in the input
  const TextRange* origins = nullptr;  // of each byte of `text`, in the input

  TextPiece part(std::size_t begin, std::size_t end) const {
    const std::string_view cut = text.substr(begin, end - begin);
    if (!origins) return {cut, at + begin, nullptr};
    return {cut, begin < end ? origins[begin].begin : at, origins + begin};
  }
  // The whole characters of the input that bytes [begin, end) stand for.
  TextRange origin(std::size_t begin, std::size_t end) const;
};

// One character of a changed text: 0 replaces the next old one, -n also removes the n behind it, 1 is inserted.
struct CharacterChange {
  std::uint32_t codepoint;
  int change;
};

struct AlignedText {
  std::string text;
  std::vector<TextRange> origins;  // empty when not tracked
  bool tracked = false;
  std::size_t most = static_cast<std::size_t>(-1);  // bytes that it may have; replace() that would make more is resource_exhausted

  static AlignedText of(const TextPiece& piece, bool tracked);
  // What is put in front belongs to the first character. Nothing happens to an empty text.
  void prepend(std::string_view front);
  // Every match becomes `content`, which belongs to the last byte of the match.
  void replace(std::span<const TextRange> matches, std::string_view content);
  // The new text, character by character; `skipped` old characters are dropped at its front.
  void transform(std::span<const CharacterChange> changes, std::size_t skipped);
};

// Owns the texts that were changed while one input is encoded.
class PieceArena {
 public:
  TextPiece keep(AlignedText&& changed, std::size_t at);

 private:
  std::deque<AlignedText> kept_;
};

}  // namespace lockstep
