// The vocabulary and the merges of a byte-level BPE model, and the merging of one piece of text.
// Knows nothing of splitting text into pieces nor of special tokens. Thread rule: immutable once read.
//   Bpe bpe = Bpe::from_json(json.at("model")); bpe.encode_piece(" the", ids);
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

class Bpe {
 public:
  static constexpr std::int32_t kMaxId = (1 << 21) - 1;

  // The object "model" of a tokenizer.json. corrupt_file or unsupported names what is wrong.
  static Bpe from_json(const nlohmann::json& model);

  // Appends the ids of `piece` (raw bytes, not alphabet characters). The pair of lowest rank merges first, among equals the
  // leftmost, as in Hugging Face's Word::merge_all. O(n log n). A byte that the vocabulary lacks gives the unknown token
  // when there is one and nothing otherwise.
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::int32_t size() const { return size_; }              // entries; ids may have gaps
  std::int32_t id_limit() const { return static_cast<std::int32_t>(texts_.size()); }  // largest id + 1
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // The text in the vocabulary (alphabet characters); empty for an id that is not taken.
  const std::string& text_of(std::int32_t id) const { return texts_[static_cast<std::size_t>(id)]; }

 private:
  struct Merge {
    std::int32_t rank, id;
  };
  struct HashPair {
    std::size_t operator()(std::uint64_t pair) const {
      pair *= 0x9E3779B97F4A7C15u;
      return pair ^ pair >> 32;
    }
  };
  struct Symbol {
    std::int32_t id, previous, next;
    bool gone;
  };

  void read_vocabulary(const nlohmann::json& vocab);
  void read_merges(const nlohmann::json& merges);
  const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  void initial_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  void merge_all(std::vector<Symbol>& symbols) const;

  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> texts_;
  std::unordered_map<std::uint64_t, Merge, HashPair> merges_;  // key: left id in the upper half, right id in the lower
  std::array<std::int32_t, 256> byte_ids_{};                   // -1: not in the vocabulary
  std::optional<std::int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a piece that is a vocabulary entry is taken whole
  std::int32_t size_ = 0;
};

}  // namespace lockstep
