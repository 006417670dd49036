// Reading a BPE model: from tokenizer.json's "model", or from the ranks of a tiktoken file.
#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/piece_cache.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

namespace {
constexpr std::size_t kMaxMerges = std::size_t{1} << 23;
constexpr std::size_t kMaxTokenBytes = 4096, kMaxRankBytes = 1024;
constexpr std::size_t kMaxRankWork = std::size_t{1} << 31;  // bytes hashed to find all ways to cut all tokens
}  // namespace

Bpe::Bpe() : owner_(PieceCache::new_owner()) {}

Bpe Bpe::from_json(const json& model, bool byte_level) {
  JsonObject object(model, "model");
  // Old files leave out the type of a BPE model.
  const json& type = object.any("type");
  if (!type.is_null() && type != "BPE") {
    fail(ErrorCode::unsupported, "model.type is {}, supported is \"BPE\"", json_excerpt(type));
  }
  Bpe bpe;
  bpe.byte_level_ = byte_level;
  object.only("dropout", 0.0);
  object.only("continuing_subword_prefix", "");
  object.only("end_of_word_suffix", "");
  bpe.byte_fallback_ = object.flag("byte_fallback", false);
  bpe.fuse_unknown_ = object.flag("fuse_unk", false);
  bpe.ignore_merges_ = object.flag("ignore_merges", false);
  bpe.read_vocabulary(object.object("vocab"));
  bpe.read_merges(object.array("merges"));
  std::optional<std::string> unknown;
  if (object.has("unk_token")) unknown = object.text("unk_token");
  object.any("unk_token");
  object.finish();
  bpe.prepare(unknown);
  return bpe;
}

void Bpe::read_vocabulary(const json& vocab) {
  if (vocab.empty()) fail(ErrorCode::corrupt_file, "model.vocab has no entries");
  for (const auto& item : vocab.items()) {
    const std::string& token = item.key();
    const json& value = item.value();
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxId)) {
      fail(ErrorCode::corrupt_file, "model.vocab['{}'] is {}, allowed is 0 to {}", utf8_excerpt(token), json_excerpt(value), kMaxId);
    }
    if (token.empty() || token.size() > kMaxTokenBytes) {
      fail(ErrorCode::corrupt_file, "model.vocab has a token of {} bytes, allowed is 1 to {}", token.size(), kMaxTokenBytes);
    }
    const auto id = value.get<std::int32_t>();
    if (!vocabulary_.add(token, id)) {
      fail(ErrorCode::corrupt_file, "model.vocab gives id {} to both '{}' and '{}'", id, utf8_excerpt(vocabulary_.text_of(id)), utf8_excerpt(token));
    }
  }
}

void Bpe::read_merges(const json& merges) {
  if (merges.size() > kMaxMerges) {
    fail(ErrorCode::corrupt_file, "model.merges has {} entries, allowed is at most {}", merges.size(), kMaxMerges);
  }
  merges_.reserve(merges.size());
  std::int32_t rank = 0;
  std::string joined;
  for (const json& merge : merges) {
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view line = merge.get_ref<const std::string&>();
      const std::size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        fail(ErrorCode::corrupt_file, "model.merges[{}] is '{}', allowed is two tokens with one space between", rank, utf8_excerpt(line));
      }
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      fail(ErrorCode::corrupt_file, "model.merges[{}] is {}, allowed is \"a b\" or [\"a\", \"b\"]", rank, json_excerpt(merge));
    }
    const auto known = [&](std::string_view token) {
      const auto id = id_of(token);
      if (!id) fail(ErrorCode::corrupt_file, "model.merges[{}] needs '{}', which is not in the vocabulary", rank, utf8_excerpt(token));
      return *id;
    };
    joined.assign(left).append(right);
    const std::int32_t left_id = known(left), right_id = known(right);
    merges_.put(left_id, right_id, {rank, known(joined)});
    ++rank;
  }
}

void Bpe::prepare(const std::optional<std::string>& unknown) {
  if (unknown) unknown_ = id_of(*unknown);
  ascii_ids_.fill(-1);
  byte_ids_.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (byte < 128) ascii_ids_[byte] = vocabulary_.id_of(std::string(1, static_cast<char>(byte)));
    if (byte_level_) byte_ids_[byte] = vocabulary_.id_of(byte_alphabet()[byte]);
    else if (byte_fallback_) byte_ids_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte));
  }
  // What would fail in the middle of a text there fails here at once.
  if (unknown && !unknown_) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool occurs = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;  // in valid UTF-8
      if (byte_ids_[byte] >= 0 || !occurs) continue;
      fail(ErrorCode::corrupt_file, "model.vocab lacks the byte {:#04x} and model.unk_token '{}' too", byte, utf8_excerpt(*unknown));
    }
  }
  if (byte_level_ && byte_fallback_) {
    // Alphabet characters that the vocabulary lacks would fall back to <0xXX> of their UTF-8: no such file is known.
    const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
    if (missing != byte_ids_.end()) {
      fail(ErrorCode::unsupported, "model.byte_fallback is true with ByteLevel and a vocabulary that lacks the byte {:#04x}, supported is false",
           missing - byte_ids_.begin());
    }
  }
  if (byte_level_ && ignore_merges_) {
    for (std::int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
      const std::string_view text = vocabulary_.text_of(id);
      if (text.empty()) continue;
      if (const auto bytes = alphabet_to_bytes(text)) by_bytes_.add(*bytes, id);
    }
  }
}

Bpe Bpe::from_ranks(const std::vector<std::pair<std::string, std::int32_t>>& ranks) {
  Bpe bpe;
  bpe.ignore_merges_ = true;
  for (const auto& [bytes, id] : ranks) {
    if (bytes.empty() || bytes.size() > kMaxRankBytes) {
      fail(ErrorCode::corrupt_file, "rank {} has a token of {} bytes, allowed is 1 to {}", id, bytes.size(), kMaxRankBytes);
    }
    if (id < 0 || id > kMaxId) fail(ErrorCode::corrupt_file, "a token has rank {}, allowed is 0 to {}", id, kMaxId);
    if (!bpe.by_bytes_.add(bytes, id)) {
      fail(ErrorCode::corrupt_file, "rank {} or its token '{}' stands there twice", id, utf8_excerpt(bytes));
    }
    bpe.vocabulary_.add(bytes_to_alphabet(bytes), id);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (bpe.by_bytes_.id_of(std::string(1, static_cast<char>(byte))) == Vocabulary::kNone) {
      fail(ErrorCode::corrupt_file, "the ranks lack the byte {:#04x}", byte);
    }
  }
  std::size_t work = 0;
  for (const auto& [bytes, id] : ranks) {
    work += bytes.size() * bytes.size();
    if (work > kMaxRankWork) fail(ErrorCode::resource_exhausted, "the ranks have too many long tokens (up to '{}')", utf8_excerpt(bytes));
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const std::int32_t left = bpe.by_bytes_.id_of(std::string_view(bytes).substr(0, cut));
      if (left == Vocabulary::kNone) continue;
      const std::int32_t right = bpe.by_bytes_.id_of(std::string_view(bytes).substr(cut));
      if (right != Vocabulary::kNone) bpe.merges_.put(left, right, {id, id});
    }
  }
  bpe.prepare(std::nullopt);
  return bpe;
}

}  // namespace lockstep
