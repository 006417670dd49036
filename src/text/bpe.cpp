#include "text/bpe.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/json_object.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

namespace {
constexpr std::size_t kMaxMerges = std::size_t{1} << 23;
constexpr std::size_t kMaxTokenBytes = 4096;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}
}  // namespace

Bpe Bpe::from_json(const json& model) {
  JsonObject object(model, "model");
  // Old files leave out the type of a BPE model.
  const json& type = object.any("type");
  if (!type.is_null() && type != "BPE") {
    fail(ErrorCode::unsupported, "model.type is {}, supported is \"BPE\"", json_excerpt(type));
  }
  Bpe bpe;
  object.only("dropout", 0.0);
  object.only("continuing_subword_prefix", "");
  object.only("end_of_word_suffix", "");
  object.only("byte_fallback", false);
  bpe.fuse_unknown_ = object.flag("fuse_unk", false);
  bpe.ignore_merges_ = object.flag("ignore_merges", false);
  bpe.read_vocabulary(object.object("vocab"));
  bpe.read_merges(object.array("merges"));
  const bool names_unknown = object.has("unk_token");
  const std::string unknown = names_unknown ? object.text("unk_token") : "";
  object.any("unk_token");
  object.finish();
  if (names_unknown) bpe.unknown_ = bpe.id_of(unknown);
  for (unsigned byte = 0; byte < 256; ++byte) {
    bpe.byte_ids_[byte] = bpe.id_of(byte_alphabet()[byte]).value_or(-1);
    const bool occurs = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;  // in valid UTF-8
    if (bpe.byte_ids_[byte] < 0 && occurs && names_unknown && !bpe.unknown_) {
      fail(ErrorCode::corrupt_file, "model.vocab lacks the byte {:#04x} and model.unk_token '{}' too", byte, utf8_excerpt(unknown));
    }
  }
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
    if (static_cast<std::size_t>(id) >= texts_.size()) texts_.resize(static_cast<std::size_t>(id) + 1);
    std::string& text = texts_[static_cast<std::size_t>(id)];
    if (!text.empty()) {
      fail(ErrorCode::corrupt_file, "model.vocab gives id {} to both '{}' and '{}'", id, utf8_excerpt(text), utf8_excerpt(token));
    }
    text = token;
    ids_.emplace(token, id);
  }
  size_ = static_cast<std::int32_t>(ids_.size());
}

void Bpe::read_merges(const json& merges) {
  if (merges.size() > kMaxMerges) {
    fail(ErrorCode::corrupt_file, "model.merges has {} entries, allowed is at most {}", merges.size(), kMaxMerges);
  }
  merges_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const json& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      const std::size_t space = line.find(' ');
      if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
        fail(ErrorCode::corrupt_file, "model.merges[{}] is '{}', allowed is two tokens with one space between", rank, utf8_excerpt(line));
      }
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      fail(ErrorCode::corrupt_file, "model.merges[{}] is {}, allowed is \"a b\" or [\"a\", \"b\"]", rank, json_excerpt(merge));
    }
    const auto known = [&](const std::string& token) {
      const auto id = id_of(token);
      if (!id) fail(ErrorCode::corrupt_file, "model.merges[{}] needs '{}', which is not in the vocabulary", rank, utf8_excerpt(token));
      return *id;
    };
    const std::int32_t left_id = known(left), right_id = known(right);
    merges_.insert_or_assign(pair_key(left_id, right_id), Merge{rank, known(left + right)});
    ++rank;
  }
}

std::optional<std::int32_t> Bpe::id_of(std::string_view token) const {
  const auto it = ids_.find(std::string(token));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const Bpe::Merge* Bpe::merge_of(std::int32_t left, std::int32_t right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::initial_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  bool unknown_open = false;
  symbols.reserve(piece.size());
  for (const char c : piece) {
    std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    const bool missing = id < 0;
    if (missing) {
      if (!unknown_ || (unknown_open && fuse_unknown_)) continue;
      id = *unknown_;
    }
    unknown_open = missing;
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1, false});
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void Bpe::merge_all(std::vector<Symbol>& symbols) const {
  struct Candidate {
    std::int32_t rank, position, id;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the largest
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto symbol = [&](std::int32_t index) -> Symbol& { return symbols[static_cast<std::size_t>(index)]; };
  std::vector<Candidate> first;
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (const Merge* merge = merge_of(symbols[i].id, symbols[i + 1].id)) {
      first.push_back({merge->rank, static_cast<std::int32_t>(i), merge->id});
    }
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  const auto offer = [&](std::int32_t left) {
    if (const Merge* merge = merge_of(symbol(left).id, symbol(symbol(left).next).id)) {
      queue.push({merge->rank, left, merge->id});
    }
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbol(top.position);
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    const Merge* merge = merge_of(left.id, right.id);
    if (!merge || merge->id != top.id) continue;  // its neighbours have changed since
    left.id = top.id;
    left.next = right.next;
    right.gone = true;
    if (left.next >= 0) symbol(left.next).previous = top.position;
    if (left.previous >= 0) offer(left.previous);
    if (left.next >= 0) offer(top.position);
  }
}

void Bpe::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = id_of(bytes_to_alphabet(piece))) {
      ids.push_back(*whole);
      return;
    }
  }
  std::vector<Symbol> symbols;
  initial_symbols(piece, symbols);
  merge_all(symbols);
  for (const Symbol& symbol : symbols) {
    if (!symbol.gone) ids.push_back(symbol.id);
  }
}

}  // namespace lockstep
