#include "sync/planes_codec.h"

#include <vector>

#include "base/error.h"
#include "sync/bit_reader.h"
#include "sync/bit_writer.h"
#include "sync/class_scan.h"
#include "sync/varint.h"

namespace lockstep {

std::string encode_planes(const ElementKind& kind, const void* old_words, const void* new_words, std::int64_t elements) {
  std::vector<RiceMean> means(static_cast<std::size_t>(kind.exponents));
  BitWriter quotients, remainders;
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::uint32_t from = word_of(old_words, kind.width, i);
    const std::int32_t step = step_between(kind, order_of(kind, from), order_of(kind, word_of(new_words, kind.width, i)));
    const std::uint32_t folded = static_cast<std::uint32_t>(step) << 1 ^ static_cast<std::uint32_t>(step >> 31);  // 0, -1, 1, -2 ... as 0, 1, 2, 3 ...
    BitWriter::rice(quotients, remainders, means[static_cast<std::size_t>(kind.exponent(from))], folded);
  }
  const std::string first = quotients.finish();
  std::string payload;
  put_varint(payload, first.size());
  return payload + first + remainders.finish();
}

PlanesDecoder::PlanesDecoder(const ElementKind& kind, std::string_view payload) : kind_(kind), means_(static_cast<std::size_t>(kind.exponents)) {
  VarintReader in(payload);
  quotients_ = BitReader(in.take(in.next()));
  remainders_ = BitReader(in.take(in.left()));
}

void PlanesDecoder::next(const void* old_words, std::int64_t count, void* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t from = word_of(old_words, kind_.width, i);
    const std::uint64_t folded = BitReader::rice(quotients_, remainders_, means_[static_cast<std::size_t>(kind_.exponent(from))]);
    fits_ &= folded >> (8 * kind_.width) == 0;
    const std::uint32_t step = static_cast<std::uint32_t>(folded >> 1) ^ -static_cast<std::uint32_t>(folded & 1);
    put_word(to, kind_.width, i, word_at(kind_, step_from(kind_, order_of(kind_, from), step)));
  }
}

void PlanesDecoder::finish() const {
  if (!fits_ || !quotients_.finished() || !remainders_.finished()) fail(ErrorCode::corrupt_file, "the planes payload does not end where its tensor ends");
}

}  // namespace lockstep
