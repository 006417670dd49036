// Embedding: the rows, and a gradient that does not depend on batch neighbours, order of calls, threads or instruction set.
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

struct Batch {
  std::vector<std::int32_t> token, segment;
};
Batch random_batch(std::int64_t T, std::int32_t vocabulary, std::int64_t segment_length, std::uint64_t seed) {
  Batch batch{random_ints(T, seed, vocabulary), {}};
  for (std::int64_t t = 0; t < T; ++t) batch.segment.push_back(static_cast<std::int32_t>(t / segment_length));
  return batch;
}

TEST(Embedding, ForwardCopiesRows) {
  for (std::int64_t h : {1, 15, 17, 33}) {
    const std::int64_t T = 20, V = 7;
    const auto table = random_floats(V * h, 1);
    const auto token = random_ints(T, 2, V);
    for (DType dtype : {DType::f32, DType::bf16}) {
      KernelBench bench;
      const View y = bench.junk(T, h);
      bench.launch(&KernelTable::embedding_forward, EmbeddingForward{y, bench.floats(table, V, h, dtype), bench.ints(token, T)});
      std::vector<float> want;
      for (std::int32_t v : token)
        for (std::int64_t i = 0; i < h; ++i) {
          const float x = table[static_cast<std::size_t>(v * h + i)];
          want.push_back(dtype == DType::bf16 ? widen(round_to_bf16(x)) : x);
        }
      EXPECT_EQ(bench.read(y), want) << h;
    }
  }
}

TEST(Embedding, GradientMatchesTheReference) {
  for (std::int64_t h : {1, 15, 17, 33}) {
    const std::int64_t T = 400, V = 37;  // token 36 never occurs
    const Batch batch = random_batch(T, V - 1, 2, 3);
    const auto dy = random_floats(T * h, 4);
    KernelBench bench;
    const View gradient = bench.junk(V, h);
    bench.launch(&KernelTable::embedding_backward,
                 EmbeddingBackward{gradient, {}, true, bench.floats(dy, T, h), bench.ints(batch.token, T), bench.ints(batch.segment, T)});
    std::vector<double> want(static_cast<std::size_t>(V * h));
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t i = 0; i < h; ++i) want[batch.token[t] * h + i] += dy[t * h + i];
    expect_close(bench.read(gradient), want, 1e-6, "gradient");
  }
}

TEST(Embedding, ChainsArePlainAddsPerSegmentAndToken) {
  // 2^24 + 1 + 1 is 2^24 in one chain, and 2^24 + 2 when the segments are added exactly.
  const std::vector<float> dy = {0x1p24f, 1.0f, 1.0f};
  for (const auto& [segment, want] : {std::pair<std::vector<std::int32_t>, float>{{0, 0, 0}, 0x1p24f}, {{0, 1, 2}, 0x1p24f + 2}}) {
    KernelBench bench;
    const View gradient = bench.junk(2, 1);
    bench.launch(&KernelTable::embedding_backward,
                 EmbeddingBackward{gradient, {}, true, bench.floats(dy, 3, 1), bench.ints({1, 1, 1}, 3), bench.ints(segment, 3)});
    EXPECT_EQ(bench.read(gradient), (std::vector<float>{0, want}));
  }
}

TEST(Embedding, BinsOverSeveralCallsGiveTheBitsOfOneCall) {
  const std::int64_t T = 300, V = 11, h = 33, wide = 48;
  const Batch batch = random_batch(T, V, 1, 5);  // many deposits: carries happen
  const auto dy = random_floats(T * h, 6, -1e3, 1e3);
  KernelBench bench;
  const View vdy = bench.floats(dy, T, h), token = bench.ints(batch.token, T), segment = bench.ints(batch.segment, T);
  const View once = bench.junk(V, h), parts = bench.junk(V, h), bins = bench.zeros(V, wide, DType::bins);
  bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{once, {}, true, vdy, token, segment});
  for (int round = 0; round < 2; ++round) {  // the second round proves that finishing empties the bins
    const std::vector<std::pair<int, int>> cuts = {{200, 100}, {0, 77}, {77, 123}};
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const auto [begin, count] = cuts[i];
      const bool finish = round == 0 ? i == 2 : false;
      bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{finish ? parts : View{}, bins, finish, vdy.row_range(begin, count),
                                                                       token.row_range(begin, count), segment.row_range(begin, count)});
    }
    if (round == 1) bench.launch(&KernelTable::finish_bins, FinishBins{parts, bins, h});
    expect_same_words(words_of(bench.read(parts)), words_of(bench.read(once)), "round " + std::to_string(round));
  }
}

// The elements of a table [V, h] in panels [V/16][h][16].
std::vector<float> in_panels(const std::vector<float>& table, std::int64_t V, std::int64_t h) {
  std::vector<float> packed(static_cast<std::size_t>((V + 15) / 16 * 16 * h));
  for (std::int64_t v = 0; v < V; ++v)
    for (std::int64_t i = 0; i < h; ++i) packed[static_cast<std::size_t>((v / 16 * h + i) * 16 + v % 16)] = table[static_cast<std::size_t>(v * h + i)];
  return packed;
}

TEST(Embedding, APackedTableHasTheBitsOfARowMajorOne) {
  for (std::int64_t h : {1, 15, 33})
    expect_same_everywhere([&](KernelBench& bench) {
      const std::int64_t T = 300, V = 37, size = 48 * h;
      const Batch batch = random_batch(T, 30, h == 15 ? 1 : 7, 11);  // of 15 columns: carries happen; no id of the last panel
      const auto table = random_floats(V * h, 12);
      const View token = bench.ints(batch.token, T), segment = bench.ints(batch.segment, T), dy = bench.floats(random_floats(T * h, 13), T, h);
      const View y = bench.junk(T, h), y_packed = bench.junk(T, h), gradient = bench.junk(V, h), packed = bench.junk(1, size), kept = bench.junk(1, size);
      // Through HeadWeight, of rows that no loss looks at: what is left is the embedding's part.
      const View nothing = bench.zeros(T, 1), none = bench.ints(std::vector<std::int32_t>(static_cast<std::size_t>(T), -1), T);
      PackedWeight w;
      w.data = bench.zeros(1, size), w.outputs = V, w.inputs = h;
      const auto backward = [&](const View& to, const View& bins, std::int64_t begin, std::int64_t count) {
        bench.launch(&KernelTable::head_weight, HeadWeight{to,
                                                           bins,
                                                           !bins,
                                                           bench.zeros(count, h),
                                                           w,
                                                           0,
                                                           false,
                                                           none.row_range(begin, count),
                                                           nothing.row_range(begin, count),
                                                           nothing.row_range(begin, count),
                                                           segment.row_range(begin, count),
                                                           {},
                                                           {},
                                                           dy.row_range(begin, count),
                                                           token.row_range(begin, count)});
      };
      bench.launch(&KernelTable::embedding_forward, EmbeddingForward{y, bench.floats(table, V, h, DType::bf16), token});
      bench.launch(&KernelTable::embedding_forward, EmbeddingForward{y_packed, bench.floats(in_panels(table, V, h), 1, size, DType::bf16), token, true});
      bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{gradient, {}, true, dy, token, segment});
      backward(packed, {}, 0, T);
      const View bins = bench.zeros(1, size, DType::bins);
      for (const auto& [begin, count] : {std::pair{100, 200}, std::pair{0, 100}}) {
        if (h != 15) break;  // a segment is never cut
        backward({}, bins, begin, count);
      }
      if (h != 15) backward({}, bins, 0, T);
      bench.launch(&KernelTable::finish_bins, FinishBins{kept, bins, 0});
      expect_same_words(words_of(bench.read(y_packed)), words_of(bench.read(y)), "rows");
      const std::vector<float> want = in_panels(bench.read(gradient), V, h);
      expect_same_words(words_of(bench.read(packed)), words_of(want), "without bins");
      expect_same_words(words_of(bench.read(kept)), words_of(want), "with bins");
      for (const View& v : {y_packed, packed, kept}) bench.record(v);
    });
}

TEST(Embedding, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t h : {1, 15, 17, 33})
    expect_same_everywhere([&](KernelBench& bench) {
      const std::int64_t T = 150, V = 70;
      const Batch batch = random_batch(T, 20, 7, 7);
      const View token = bench.ints(batch.token, T), y = bench.junk(T, h), gradient = bench.junk(V, h), kept = bench.junk(V, h);
      const View bins = bench.zeros(V, (h + 15) / 16 * 16, DType::bins), dy = bench.floats(random_floats(T * h, 8), T, h);
      const View segment = bench.ints(batch.segment, T);
      bench.launch(&KernelTable::embedding_forward, EmbeddingForward{y, bench.floats(random_floats(V * h, 9), V, h, DType::bf16), token});
      bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{gradient, {}, true, dy, token, segment});
      bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{{}, bins, false, dy, token, segment});
      bench.launch(&KernelTable::finish_bins, FinishBins{kept, bins, h});
      for (const View& v : {y, gradient, kept}) bench.record(v);
      if (bench.traced()) {
        const std::size_t n = static_cast<std::size_t>(V * h), from = static_cast<std::size_t>(T * h);
        const auto& hashes = bench.hashes();
        expect_same_words({hashes.begin() + from, hashes.begin() + from + n}, {hashes.begin() + from + n, hashes.end()}, "bins and no bins");
      }
    });
}

// Bins that hold deposits of ids which the finishing call does not have, many chains of one id, a call without rows, and packed tables.
TEST(Embedding, KeptDepositsAndPackedTablesAreTheSameEverywhere) {
  for (std::int64_t h : {15, 33})
    expect_same_everywhere([&](KernelBench& bench) {
      const std::int64_t T = 150, V = 37;
      Batch batch = random_batch(T, 30, 1, 14);
      const View first = bench.ints(batch.token, T), segment = bench.ints(batch.segment, T), dy = bench.floats(random_floats(T * h, 15, -1e3, 1e3), T, h);
      for (std::int32_t& v : batch.token) v = v < 15 ? 3 : v;
      const View second = bench.ints(batch.token, T), bins = bench.zeros(V, (h + 15) / 16 * 16, DType::bins), gradient = bench.junk(V, h);
      bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{{}, bins, false, dy, first, segment});
      bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{gradient, bins, true, dy, second, segment});
      bench.record(gradient);
      bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{gradient, {}, true, dy.row_range(0, 0), first.row_range(0, 0), segment.row_range(0, 0)});
      bench.record(gradient);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const View y = bench.junk(T, h), table = bench.floats(in_panels(random_floats(V * h, 16), V, h), 1, 48 * h, dtype);
        bench.launch(&KernelTable::embedding_forward, EmbeddingForward{y, table, first, true});
        bench.record(y);
      }
    });
}

}  // namespace
}  // namespace lockstep
