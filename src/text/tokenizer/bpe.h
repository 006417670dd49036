// The vocabulary and the merges of a BPE model, and the merging of one piece of text. Two kinds: byte-level (pieces are
// bytes, texts are written in the byte alphabet) and by characters (with byte fallback and an unknown token).
// Knows nothing of splitting text into pieces nor of special tokens. Thread rule: immutable once read.
//   Bpe bpe = Bpe::from_json(json.at("model"), /*byte_level=*/true); bpe.encode_piece(" the", ids);
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/merge_table.h"
#include "text/tokenizer/vocabulary.h"

namespace lockstep {

class Bpe {
 public:
  static constexpr std::int32_t kMaxId = (1 << 21) - 1;

  // The object "model" of a tokenizer.json. corrupt_file or unsupported names what is wrong.
  static Bpe from_json(const nlohmann::json& model, bool byte_level);
  // A rank file: any two neighbours whose bytes together have a rank merge, the lowest rank first.
  static Bpe from_ranks(const std::vector<std::pair<std::string, std::int32_t>>& ranks);

  // Appends the ids of `piece` (not empty). The pair of lowest rank merges first, among equals the leftmost, as in Hugging
  // Face's Word::merge_all. O(n log n). What the vocabulary lacks gives its bytes' tokens, the unknown token or nothing.
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;
  // Also returns how many bytes of the piece each token covers.
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, std::vector<std::uint32_t>& bytes) const;
  // Encodes without the merges that produce a token of `barred`. Tokens of a single character or byte are not affected.
  using Barred = std::vector<bool>;  // by id
  void encode_piece_without(const Barred& barred, std::string_view piece, std::vector<std::int32_t>& ids, std::vector<std::uint32_t>* bytes = nullptr) const;
  // Which of `ids` merging can produce; empty: none.
  Barred makeable(const std::vector<std::int32_t>& ids) const;

  // Texts as the file has them: alphabet characters when byte-level.
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<std::int32_t> id_of(std::string_view token) const {
    const std::int32_t id = vocabulary_.id_of(token);
    return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
  }

 private:
  struct Symbol {
    std::int32_t id, previous, next;
    std::uint32_t bytes;  // 0: swallowed by the one before
  };

  Bpe();
  void read_vocabulary(const nlohmann::json& vocab);
  void read_merges(const nlohmann::json& merges);
  void prepare(const std::optional<std::string>& unknown);
  std::int32_t character_id(std::string_view character) const;
  void byte_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  void character_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  std::optional<std::int32_t> whole(std::string_view piece) const;
  const std::vector<Symbol>& merge(std::string_view piece, const Barred* barred = nullptr) const;  // until the thread's next call
  void merge_few(std::vector<Symbol>& symbols, const Barred* barred) const;
  void merge_many(std::vector<Symbol>& symbols, const Barred* barred) const;
  const Merge* merge_of(std::int32_t left, std::int32_t right, const Barred* barred) const {
    const Merge* found = merges_.find(left, right);
    return found && barred && (*barred)[static_cast<std::size_t>(found->id)] ? nullptr : found;
  }

  Vocabulary vocabulary_;
  Vocabulary by_bytes_;  // byte-level with ignore_merges: the same ids by raw bytes
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};  // byte-level: of each byte; else of <0xXX>, when byte_fallback; -1: none
  std::array<std::int32_t, 128> ascii_ids_{};
  std::optional<std::int32_t> unknown_;
  bool byte_level_ = true, byte_fallback_ = false, fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a piece that is a vocabulary entry is taken whole
  std::uint64_t owner_;         // of entries in the piece cache
};

}  // namespace lockstep
