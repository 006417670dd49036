#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/piece_cache.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
constexpr std::size_t kFewSymbols = 32;  // up to here a plain loop is faster than a heap
constexpr std::size_t kMostKept = std::size_t{1} << 16;
}  // namespace

std::int32_t Bpe::character_id(std::string_view character) const {
  const auto first = static_cast<unsigned char>(character.front());
  return first < 0x80 ? ascii_ids_[first] : vocabulary_.id_of(character);
}

void Bpe::byte_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  bool unknown_open = false;
  for (const char c : piece) {
    std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    const bool missing = id < 0;
    if (missing) {
      if (!unknown_) continue;
      if (unknown_open && fuse_unknown_) {
        ++symbols.back().bytes;
        continue;
      }
      id = *unknown_;
    }
    unknown_open = missing;
    symbols.push_back({id, 0, 0, 1});
  }
}

// An unknown character waits until a known one comes, so that neighbours can be fused; byte tokens overtake it.
void Bpe::character_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  std::uint32_t waiting = 0;  // bytes of the unknown token that is not written yet
  const auto write_unknown = [&] {
    if (waiting > 0) symbols.push_back({*unknown_, 0, 0, waiting});
    waiting = 0;
  };
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, utf8_front(piece).bytes);
    piece.remove_prefix(character.size());
    const auto bytes = static_cast<std::uint32_t>(character.size());
    if (const std::int32_t id = character_id(character); id >= 0) {
      write_unknown();
      symbols.push_back({id, 0, 0, bytes});
      continue;
    }
    const auto has_token = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
    if (byte_fallback_ && std::all_of(character.begin(), character.end(), has_token)) {
      for (const char c : character) symbols.push_back({byte_ids_[static_cast<unsigned char>(c)], 0, 0, 1});
      continue;
    }
    if (!unknown_) continue;
    if (!fuse_unknown_) write_unknown();
    waiting += bytes;
  }
  write_unknown();
}

// Few symbols: the merges of all neighbours in an array, the best one found by looking at each.
void Bpe::merge_few(std::vector<Symbol>& symbols, const Barred* barred) const {
  constexpr Merge kNoMerge{INT32_MAX, 0};
  std::array<Merge, kFewSymbols> merges;  // of symbol i with the one behind it
  std::size_t count = symbols.size();
  const auto look = [&](std::size_t i) {
    const Merge* found = merge_of(symbols[i].id, symbols[i + 1].id, barred);
    merges[i] = found ? *found : kNoMerge;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == INT32_MAX) break;
    symbols[best].id = merges[best].id;
    symbols[best].bytes += symbols[best + 1].bytes;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    if (best > 0) look(best - 1);
    if (best + 1 < count) look(best);
  }
  symbols.resize(count);
}

void Bpe::merge_many(std::vector<Symbol>& symbols, const Barred* barred) const {
  struct Candidate {
    std::int32_t rank, position, id;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the largest
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto symbol = [&](std::int32_t index) -> Symbol& { return symbols[static_cast<std::size_t>(index)]; };
  std::vector<Candidate> first;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<std::int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<std::int32_t>(i) + 1 : -1;
    if (i + 1 == symbols.size()) break;
    if (const Merge* merge = merge_of(symbols[i].id, symbols[i + 1].id, barred)) {
      first.push_back({merge->rank, static_cast<std::int32_t>(i), merge->id});
    }
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  const auto offer = [&](std::int32_t left) {
    if (const Merge* merge = merge_of(symbol(left).id, symbol(symbol(left).next).id, barred)) {
      queue.push({merge->rank, left, merge->id});
    }
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbol(top.position);
    if (left.bytes == 0 || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    const Merge* merge = merge_of(left.id, right.id, barred);
    if (!merge || merge->id != top.id) continue;  // its neighbours have changed since
    left.id = top.id;
    left.next = right.next;
    left.bytes += right.bytes;
    right.bytes = 0;
    if (left.next >= 0) symbol(left.next).previous = top.position;
    if (left.previous >= 0) offer(left.previous);
    if (left.next >= 0) offer(top.position);
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.bytes == 0; });
}

std::optional<std::int32_t> Bpe::whole(std::string_view piece) const {
  if (!ignore_merges_) return std::nullopt;
  const std::int32_t id = (byte_level_ ? by_bytes_ : vocabulary_).id_of(piece);
  return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
}

const std::vector<Bpe::Symbol>& Bpe::merge(std::string_view piece, const Barred* barred) const {
  // Thread-local, so that a piece costs no allocation; freed when one long piece made it large.
  thread_local std::vector<Symbol> symbols;
  if (symbols.capacity() > kMostKept) symbols = {};
  symbols.clear();
  if (byte_level_) byte_symbols(piece, symbols);
  else character_symbols(piece, symbols);
  if (symbols.size() <= kFewSymbols) merge_few(symbols, barred);
  else merge_many(symbols, barred);
  return symbols;
}

void Bpe::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  PieceCache& cache = PieceCache::of_this_thread();
  const bool cached = piece.size() <= PieceCache::kMaxBytes;
  if (cached && cache.find(owner_, piece, ids)) return;
  const std::size_t before = ids.size();
  if (const auto id = whole(piece)) {
    ids.push_back(*id);
  } else {
    for (const Symbol& symbol : merge(piece)) ids.push_back(symbol.id);
  }
  if (cached) cache.put(owner_, piece, std::span(ids).subspan(before));
}

void Bpe::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, std::vector<std::uint32_t>& bytes) const {
  if (const auto id = whole(piece)) {
    ids.push_back(*id);
    bytes.push_back(static_cast<std::uint32_t>(piece.size()));
    return;
  }
  for (const Symbol& symbol : merge(piece)) {
    ids.push_back(symbol.id);
    bytes.push_back(symbol.bytes);
  }
}

void Bpe::encode_piece_without(const Barred& barred, std::string_view piece, std::vector<std::int32_t>& ids, std::vector<std::uint32_t>* bytes) const {
  const auto put = [&](std::int32_t id, std::size_t size) {
    ids.push_back(id);
    if (bytes) bytes->push_back(static_cast<std::uint32_t>(size));
  };
  const auto id = whole(piece);
  if (id && !barred[static_cast<std::size_t>(*id)]) return put(*id, piece.size());
  for (const Symbol& symbol : merge(piece, &barred)) put(symbol.id, symbol.bytes);
}

Bpe::Barred Bpe::makeable(const std::vector<std::int32_t>& ids) const {
  Barred wanted(static_cast<std::size_t>(vocabulary_.id_limit()));
  for (const std::int32_t id : ids)
    if (id < vocabulary_.id_limit()) wanted[static_cast<std::size_t>(id)] = !vocabulary_.text_of(id).empty();
  Barred found(wanted.size());
  if (ignore_merges_) found = wanted;
  merges_.for_each([&](const Merge& merge) {
    if (wanted[static_cast<std::size_t>(merge.id)]) found[static_cast<std::size_t>(merge.id)] = true;
  });
  if (std::find(found.begin(), found.end(), true) == found.end()) found.clear();
  return found;
}

}  // namespace lockstep
