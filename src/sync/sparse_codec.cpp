#include "sync/sparse_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "sync/bit_reader.h"
#include "sync/bit_writer.h"
#include "sync/class_scan.h"
#include "sync/varint.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kExpectedGap = 64, kExpectedRun = 64, kExpectedMagnitude = 1;  // before anything of a class is known
constexpr std::int64_t kNoMore = std::int64_t{1} << 62;                                // elements until the next change of a class that has none

// The changes of one class on their way out.
class ClassWriter {
 public:
  void change(std::uint64_t gap, std::int32_t step) {
    ++changes_;
    positions_.rice(gaps_, gap);
    positions_.bits(step < 0 ? 1 : 0, 1);
    const std::uint64_t magnitude = step < 0 ? -static_cast<std::int64_t>(step) : step;
    if (magnitude == 1) {
      ++ones_;
      return;
    }
    steps_.rice(runs_, ones_);
    steps_.rice(magnitudes_, magnitude - 2);
    ones_ = 0;
  }
  void finish(std::string& head, std::string& streams) {
    put_varint(head, changes_);
    if (changes_ == 0) return;
    if (ones_ > 0) steps_.rice(runs_, ones_);
    const std::string positions = positions_.finish(), steps = steps_.finish();
    put_varint(head, positions.size());
    put_varint(head, steps.size());
    streams += positions;
    streams += steps;
  }

 private:
  std::uint64_t changes_ = 0, ones_ = 0;
  RiceMean gaps_{kExpectedGap}, runs_{kExpectedRun}, magnitudes_{kExpectedMagnitude};
  BitWriter positions_, steps_;
};

class ClassReader {
 public:
  void begin(std::uint64_t changes, std::string_view positions, std::string_view steps) {
    changes_ = changes;
    positions_ = BitReader(positions);
    steps_ = BitReader(steps);
  }
  // Elements of the class before its next change.
  std::int64_t gap() {
    if (changes_ == 0) return kNoMore;
    --changes_;
    return static_cast<std::int64_t>(positions_.rice(gaps_));
  }
  std::uint32_t step() {
    const bool negative = positions_.bits(1) != 0;
    if (!in_run_) {
      ones_ = steps_.rice(runs_);
      in_run_ = true;
    }
    std::uint64_t magnitude = 1;
    if (ones_ > 0) {
      --ones_;
    } else {
      magnitude = steps_.rice(magnitudes_) + 2;
      in_run_ = false;
    }
    largest_ = std::max(largest_, magnitude);
    return static_cast<std::uint32_t>(negative ? -magnitude : magnitude);
  }
  // All changes were made, and nothing is left over.
  bool finished(std::int64_t left) const {
    return changes_ == 0 && left > kNoMore / 2 && positions_.finished() && steps_.finished() && (!in_run_ || ones_ == 0) &&
           largest_ <= (std::uint64_t{1} << 31);
  }

 private:
  std::uint64_t changes_ = 0, ones_ = 0, largest_ = 0;
  bool in_run_ = false;
  RiceMean gaps_{kExpectedGap}, runs_{kExpectedRun}, magnitudes_{kExpectedMagnitude};
  BitReader positions_, steps_;
};

[[noreturn]] void refuse_payload(const char* what) { fail(ErrorCode::corrupt_file, "the sparse payload {}", what); }

// The changes of a tensor, group by group: `each_change(scan, group, f)` calls f(element of the group, its new word) for those of a group, ascending.
template <class BeginChunk, class EachChange>
std::optional<SparsePayload> encode_changes(const ElementKind& kind, const void* old_words, std::int64_t elements, const BeginChunk& begin_chunk,
                                            const EachChange& each_change) {
  const ClassChoice choice = choose_classes(kind, old_words, elements);
  std::array<ClassWriter, kMostClasses> writers;
  std::array<std::int64_t, kMostClasses> since{};  // elements of a class since its last change, up to the group's begin
  std::array<std::int32_t, kMostClasses> counts{};
  ClassScan scan(kind, choice, old_words, elements);
  std::int64_t changed = 0;
  while (scan.next_chunk()) {
    begin_chunk(scan);
    for (int g = 0; g < scan.groups(); ++g) {
      const std::uint8_t* group = scan.group(g);
      count_classes(group, choice.count, counts.data());
      each_change(scan, g, [&](int at, std::uint32_t word) {
        const std::int64_t i = scan.first() + g * kClassGroup + at;
        const std::uint8_t c = group[at];
        const int rank = class_rank(group, c, at);
        writers[c].change(static_cast<std::uint64_t>(since[c] + rank),
                          step_between(kind, order_of(kind, word_of(old_words, kind.width, i)), order_of(kind, word)));
        since[c] = -rank - 1;
        ++changed;
      });
      for (int c = 0; c < choice.count; ++c) since[static_cast<std::size_t>(c)] += counts[static_cast<std::size_t>(c)];
    }
    if (changed > elements / 2) return std::nullopt;
  }
  std::string head, streams;
  head += static_cast<char>(choice.low);
  head += static_cast<char>(choice.count);
  for (int c = 0; c < choice.count; ++c) writers[static_cast<std::size_t>(c)].finish(head, streams);
  return SparsePayload{head + streams, changed};
}
}  // namespace

std::optional<SparsePayload> encode_sparse(const ElementKind& kind, const void* old_words, const void* new_words, std::int64_t elements) {
  std::array<std::uint64_t, ClassScan::kChunk / 64> differ{};
  return encode_changes(
      kind, old_words, elements, [&](const ClassScan& scan) { scan.differences(new_words, differ.data()); },
      [&](const ClassScan& scan, int g, const auto& change) {
        for (int block = 0; block < kClassGroup / 64; ++block)
          for (std::uint64_t hits = differ[static_cast<std::size_t>(g * (kClassGroup / 64) + block)]; hits != 0; hits &= hits - 1) {
            const int at = block * 64 + std::countr_zero(hits);
            change(at, word_of(new_words, kind.width, scan.first() + g * kClassGroup + at));
          }
      });
}

std::optional<SparsePayload> encode_sparse(const ElementKind& kind, const void* old_words, const ElementChanges& changes, std::int64_t elements) {
  std::size_t next = 0;
  return encode_changes(
      kind, old_words, elements, [](const ClassScan&) {},
      [&](const ClassScan& scan, int g, const auto& change) {
        const std::int64_t begin = scan.first() + g * kClassGroup;
        for (; next < changes.positions.size() && changes.positions[next] < begin + kClassGroup; ++next)
          change(static_cast<int>(changes.positions[next] - begin), changes.words[next]);
      });
}

struct SparseDecoder::State {
  ElementKind kind;
  ClassChoice choice;
  std::array<ClassReader, kMostClasses> readers;
  std::array<std::int64_t, kMostClasses> left{};  // elements of a class before its next change
};

SparseDecoder::~SparseDecoder() = default;

SparseDecoder::SparseDecoder(const ElementKind& kind, std::string_view payload, std::int64_t elements) : state_(std::make_unique<State>()) {
  state_->kind = kind;
  VarintReader in(payload);
  ClassChoice& choice = state_->choice;
  choice.low = static_cast<std::uint8_t>(in.take(1)[0]);
  choice.count = static_cast<std::uint8_t>(in.take(1)[0]);
  if (choice.count < 1 || choice.count > kMostClasses || choice.low + choice.count > kind.exponents)
    refuse_payload("names classes that its type does not have");
  std::array<std::array<std::uint64_t, 3>, kMostClasses> sizes{};
  std::uint64_t changes = 0;
  for (int c = 0; c < choice.count; ++c) {
    auto& [count, positions, steps] = sizes[static_cast<std::size_t>(c)];
    if ((count = in.next()) == 0) continue;
    positions = in.next();
    steps = in.next();
    if (count > static_cast<std::uint64_t>(elements) || (changes += count) > static_cast<std::uint64_t>(elements))
      refuse_payload("has more changes than elements");
  }
  for (int c = 0; c < choice.count; ++c) {
    const auto& [count, positions, steps] = sizes[static_cast<std::size_t>(c)];
    const std::string_view first = in.take(positions), second = in.take(steps);
    ClassReader& reader = state_->readers[static_cast<std::size_t>(c)];
    reader.begin(count, first, second);
    state_->left[static_cast<std::size_t>(c)] = reader.gap();
  }
  if (in.left() > 0) refuse_payload("is longer than its streams");
}

void SparseDecoder::next(const void* old_words, std::int64_t elements, void* to) {
  auto& [kind, choice, readers, left] = *state_;
  std::array<std::int32_t, kMostClasses> counts{};
  ClassScan scan(kind, choice, old_words, elements);
  const auto* from = static_cast<const char*>(old_words);
  while (scan.next_chunk()) {
    const std::int64_t begin = scan.first() * kind.width;
    if (to != old_words) std::memcpy(static_cast<char*>(to) + begin, from + begin, static_cast<std::size_t>(scan.size() * kind.width));
    for (int g = 0; g < scan.groups(); ++g) {
      const std::uint8_t* group = scan.group(g);
      count_classes(group, choice.count, counts.data());
      for (int c = 0; c < choice.count; ++c) {
        const std::int32_t count = counts[static_cast<std::size_t>(c)];
        std::int64_t next = left[static_cast<std::size_t>(c)];
        while (next < count) {
          ClassReader& reader = readers[static_cast<std::size_t>(c)];
          const std::int64_t i = scan.first() + g * kClassGroup + class_place(group, c, static_cast<int>(next));
          const std::uint32_t place = step_from(kind, order_of(kind, word_of(from, kind.width, i)), reader.step());
          put_word(to, kind.width, i, word_at(kind, place));
          next += 1 + reader.gap();
        }
        left[static_cast<std::size_t>(c)] = next - count;
      }
    }
  }
}

void SparseDecoder::finish() const {
  for (int c = 0; c < state_->choice.count; ++c)
    if (!state_->readers[static_cast<std::size_t>(c)].finished(state_->left[static_cast<std::size_t>(c)])) refuse_payload("does not end where its tensor ends");
}

}  // namespace lockstep
