// set_elements: exactly the named elements get exactly the given bits, of every type, on every backend.
#include <numeric>

#include "kernels/kernel_test_tools.h"

namespace lockstep {
namespace {

constexpr std::int64_t kChangesSizes[] = {1, 15, 17, 33, 20'000};

struct SomeChanges {
  std::vector<std::int32_t> offsets, bits;
};

// A third of `size` elements in no order, with any bits: among them NaNs, infinities, -0 and denormals of fp32 and of bf16.
SomeChanges some_changes(std::int64_t size, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::fuzz);
  std::vector<std::int32_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(static_cast<std::uint32_t>(i))]);
  all.resize(static_cast<std::size_t>((size + 2) / 3));
  const std::vector<std::uint32_t> special = {0x80000000u, 0x7fc12345u, 0xff812345u, 0x00000001u, 0x7f800000u, 0x8000u, 0x7f81u, 0xffc1u, 1u, 0xffffffffu};
  SomeChanges changes{std::move(all), {}};
  for (std::size_t i = 0; i < changes.offsets.size(); ++i)
    changes.bits.push_back(static_cast<std::int32_t>(i < special.size() ? special[i] : random.below(0xffffffffu)));
  return changes;
}

class SetElementsOf : public testing::TestWithParam<DType> {};

std::vector<std::uint32_t> words_on(KernelBench& bench, const View& of, DType dtype) {
  std::vector<std::uint32_t> words;
  const View bytes{of.address, DType::u8, 1, 1, of.size() * of.element_bytes, of.size() * of.element_bytes};
  const std::vector<std::uint8_t> all = bench.backend().stream().read_bytes(bytes).get();
  const auto width = static_cast<std::size_t>(element_size(dtype, false));
  for (std::size_t i = 0; i < all.size(); i += width) {
    std::uint32_t word = 0;
    std::memcpy(&word, all.data() + i, width);
    words.push_back(word);
  }
  return words;
}

View junk_of(KernelBench& bench, std::int64_t size, DType dtype) {
  if (dtype != DType::u8) return bench.floats(random_floats(size, 3), 1, size, dtype);
  const View view = bench.zeros(1, size, DType::u8);
  const std::vector<std::int32_t> values = random_ints(size, 3, 256);
  bench.backend().stream().write(view, std::vector<std::uint8_t>(values.begin(), values.end()));
  return view;
}

TEST_P(SetElementsOf, SetsTheNamedOnesToTheBitsAndNoOther) {
  const auto width = static_cast<int>(element_size(GetParam(), false));
  for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred, BackendKind::emulated})
    for (const std::int64_t size : kChangesSizes) {
      KernelBench bench({.kind = kind, .threads = 2});
      const View to = junk_of(bench, size, GetParam());
      std::vector<std::uint32_t> want = words_on(bench, to, GetParam());
      const SomeChanges changes = some_changes(size, static_cast<std::uint64_t>(size));
      const auto n = std::ssize(changes.offsets);
      bench.launch(&KernelTable::set_elements, SetElements{to, bench.ints(changes.offsets, n), bench.ints(changes.bits, n)});
      for (std::size_t i = 0; i < changes.offsets.size(); ++i)
        want[static_cast<std::size_t>(changes.offsets[i])] = static_cast<std::uint32_t>(changes.bits[i]) & (0xffffffffu >> (32 - 8 * width));
      EXPECT_EQ(words_on(bench, to, GetParam()), want) << backend_kind_name(kind) << " of " << size;
    }
}
INSTANTIATE_TEST_SUITE_P(All, SetElementsOf, testing::Values(DType::f32, DType::bf16, DType::u8),
                         [](const auto& one) { return std::string(dtype_name(one.param)); });

TEST(SetElements, BitsAndHashesAreTheSameEverywhere) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t size : kChangesSizes)
      expect_same_everywhere([&](KernelBench& bench) {
        const View to = bench.floats(random_floats(size, 4), 1, size, dtype);
        const SomeChanges changes = some_changes(size, 5);
        const auto n = std::ssize(changes.offsets);
        bench.launch(&KernelTable::set_elements, SetElements{to, bench.ints(changes.offsets, n), bench.ints(changes.bits, n)});
        bench.record(to);
      });
}

// On the traced backend a set element is an input like one that was uploaded: its hash is that of its value.
TEST(SetElements, ATracedElementIsAnInput) {
  KernelBench bench({.kind = BackendKind::traced, .threads = 1});
  const View to = bench.floats({1, 2, 3}, 1, 3, DType::bf16), same = bench.floats({1, 2.5f, 3}, 1, 3, DType::bf16);
  bench.launch(&KernelTable::set_elements, SetElements{to, bench.ints({1}, 1), bench.ints({static_cast<std::int32_t>(round_to_bf16(2.5f).bits)}, 1)});
  EXPECT_EQ(bench.backend().stream().read_hashes(to).get(), bench.backend().stream().read_hashes(same).get());
}

TEST(SetElements, NoChangesChangeNothing) {
  KernelBench bench;
  const View to = bench.floats({1, 2}, 1, 2);
  bench.launch(&KernelTable::set_elements, SetElements{to, bench.zeros(0, 1, DType::i32), bench.zeros(0, 1, DType::i32)});
  EXPECT_EQ(bench.read(to), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace lockstep
