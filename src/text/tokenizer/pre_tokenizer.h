// Splits text into the pieces that BPE merges within: the object "pre_tokenizer" of a tokenizer.json (Split, Digits,
// Whitespace, WhitespaceSplit, Punctuation, Metaspace, ByteLevel as the last step, or a Sequence of them).
// Pieces go through the steps one by one, so memory does not grow with their number. Knows no vocabulary.
// Thread rule: immutable once read.
//   pre_tokenizer.split(piece, /*tracked=*/false, arena, sink);  // calls sink.piece(TextPiece) for each, none empty
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/aligned_text.h"

namespace lockstep {

class PreTokenizer {
 public:
  class Sink {
   public:
    virtual void piece(const TextPiece& piece) = 0;

   protected:
    ~Sink() = default;
  };

  // null: every text is one piece. corrupt_file or unsupported names the construct.
  static PreTokenizer from_json(const nlohmann::json& json);
  // The pattern of a rank file: every match is a piece, and so is what lies between.
  static PreTokenizer of_pattern(std::string_view pattern);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // The pieces are bytes for a byte-level vocabulary, not characters.
  bool byte_level() const { return byte_level_; }
  // Whether splitting depends on a piece's position in the input, which only tracked origins tell.
  bool looks_at_origins(bool behind_normalizer) const { return first_only_ && (behind_normalizer || steps_.size() > 1); }
  // The pieces live as long as the input and `arena`. tracked: texts that change keep their origins.
  void split(const TextPiece& piece, bool tracked, PieceArena& arena, Sink& sink) const;

  class Step;

 private:
  PreTokenizer();
  std::vector<std::unique_ptr<const Step>> steps_;
  bool byte_level_ = false, first_only_ = false;
};

}  // namespace lockstep
