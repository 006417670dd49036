// The object "normalizer" of a tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, or a Sequence.
// Knows no tokens. Thread rule: immutable once read.
//   const Normalizer n = Normalizer::from_json(json); TextPiece changed = n.apply(piece, /*tracked=*/true, arena);
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/aligned_text.h"
#include "text/tokenizer/unicode_forms.h"

namespace lockstep {

class Normalizer {
 public:
  // null: changes nothing. corrupt_file or unsupported names the construct.
  static Normalizer from_json(const nlohmann::json& json);
  // A single form, for rank files.
  static Normalizer of(NormalForm form);
  Normalizer();
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  bool empty() const { return steps_.empty(); }
  // `piece` itself when nothing changes, else a text that `arena` owns. tracked: with origins.
  TextPiece apply(const TextPiece& piece, bool tracked, PieceArena& arena) const;
  std::string apply(std::string_view text) const;

  class Step;

 private:
  std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace lockstep
