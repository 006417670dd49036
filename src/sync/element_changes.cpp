#include "sync/element_changes.h"

#include <array>
#include <bit>
#include <cstring>

#include "numerics/isa/word_classes.h"
#include "sync/class_scan.h"

namespace lockstep {
namespace {
constexpr std::int64_t kScanned = 4096;  // elements whose differences are looked for at once; a multiple of 64
}

void each_difference(int width, std::string_view before, std::string_view now, const std::function<void(std::int64_t, std::uint32_t)>& f) {
  const std::int64_t bytes = kScanned * width;
  const auto size = std::ssize(now);
  std::vector<char> last_before, last_now;  // filled up with zeros
  std::array<std::uint64_t, kScanned / 64> masks{};
  for (std::int64_t first = 0; first < size; first += bytes) {
    const char *a = before.data() + first, *b = now.data() + first;
    if (const std::int64_t left = size - first; left < bytes) {
      last_before.assign(static_cast<std::size_t>(bytes), '\0'), last_now.assign(static_cast<std::size_t>(bytes), '\0');
      std::memcpy(last_before.data(), a, static_cast<std::size_t>(left));
      std::memcpy(last_now.data(), b, static_cast<std::size_t>(left));
      a = last_before.data(), b = last_now.data();
    }
    difference_masks(a, b, width, kScanned / 64, masks.data());
    for (std::int64_t block = 0; block < kScanned / 64; ++block)
      for (std::uint64_t hits = masks[static_cast<std::size_t>(block)]; hits != 0; hits &= hits - 1) {
        const std::int64_t at = block * 64 + std::countr_zero(hits);
        f(first / width + at, word_of(b, width, at));
      }
  }
}

}  // namespace lockstep
