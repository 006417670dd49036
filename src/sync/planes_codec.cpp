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

void decode_planes(const ElementKind& kind, std::string_view payload, const void* old_words, std::int64_t elements, void* to) {
  VarintReader in(payload);
  const std::string_view first = in.take(in.next());
  std::vector<RiceMean> means(static_cast<std::size_t>(kind.exponents));
  BitReader quotients(first), remainders(in.take(in.left()));
  bool fits = true;
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::uint32_t from = word_of(old_words, kind.width, i);
    const std::uint64_t folded = BitReader::rice(quotients, remainders, means[static_cast<std::size_t>(kind.exponent(from))]);
    fits &= folded >> (8 * kind.width) == 0;
    const std::uint32_t step = static_cast<std::uint32_t>(folded >> 1) ^ -static_cast<std::uint32_t>(folded & 1);
    put_word(to, kind.width, i, word_at(kind, step_from(kind, order_of(kind, from), step)));
  }
  if (!fits || !quotients.finished() || !remainders.finished()) fail(ErrorCode::corrupt_file, "the planes payload does not end where its tensor ends");
}

}  // namespace lockstep
