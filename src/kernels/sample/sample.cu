// The CUDA form of sample.h: one block per row, blocks taking rows in turn. Nothing is gathered: logits are read through the list of allowed ids
// and divided where they are used. Scores are compared by a total order, so the arg-max is the CPU's, whichever tokens are skipped.
#include "kernels/head/block_log_sum.h"
#include "kernels/sample/allowed.h"
#include "kernels/sample/block_ranks.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr std::int64_t kSampleScratch = std::int64_t{256} << 20;  // bytes at most, unless a single row needs more

// One row over n tokens: all of the vocabulary, or the allowed ones.
struct SampledRow {
  const float* logits;
  const float* adjusted;    // the same pointer where nothing is adjusted
  const std::int32_t* ids;  // null: index and id are the same
  std::int64_t n;
  float temperature;
  LOCKSTEP_DEVICE std::int64_t id(std::int64_t i) const { return ids ? ids[i] : i; }
  LOCKSTEP_DEVICE float raw(std::int64_t i) const { return logits[id(i)]; }
  LOCKSTEP_DEVICE float own(std::int64_t i) const { return adjusted[id(i)]; }
  LOCKSTEP_DEVICE float z(std::int64_t i) const { return temperature == 1.0f ? own(i) : own(i) / temperature; }
};

struct SampleBody {
  static constexpr bool kCooperates = true;
  static constexpr int kArrays = 4;  // of V numbers, a block's scratch
  Sample op;
  std::int32_t* scratch;
  // Shared: the memory of ranks, which every search uses too, then that of leaves.
  static constexpr std::size_t kSharedBytes = kRankMemory + sizeof(LeafMemory);

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    for (std::int64_t row = t.block(); row < op.logits.rows; row += t.blocks()) {
      sample_row(t, row);
      t.sync();
    }
  }

 private:
  LOCKSTEP_DEVICE std::int32_t* array(const Thread& t, int which) const { return scratch + (t.block() * kArrays + which) * op.logits.cols; }

  LOCKSTEP_DEVICE void put(const Thread& t, std::int64_t row, std::int64_t token, float raw, float sampling) const {
    if (t.index() != 0) return;
    ints(op.token)[row * op.token.stride] = static_cast<std::int32_t>(token);
    floats(op.raw_logprob)[row * op.raw_logprob.stride] = raw;
    floats(op.sampling_logprob)[row * op.sampling_logprob.stride] = sampling;
  }
  LOCKSTEP_DEVICE void refuse(const Thread& t, std::int64_t row, int bit, float logprob) const {
    if (t.index() == 0) ints(op.flags)[row * op.flags.stride] |= 1 << bit;
    put(t, row, -1, logprob, logprob);
  }

  LOCKSTEP_DEVICE void sample_row(const Thread& t, std::int64_t row) const {
    LeafMemory& leaves = *t.shared<LeafMemory>(kRankMemory);
    SampledRow of{floats(op.logits) + row * op.logits.stride, nullptr, nullptr, op.logits.cols, floats(op.temperature)[row * op.temperature.stride]};
    of.adjusted = of.logits;
    if (op.adjusted) {
      const std::int32_t at = ints(op.adjusted_row)[row * op.adjusted_row.stride];
      if (at >= 0) of.adjusted = floats(op.adjusted) + at * op.adjusted.stride;
    }
    if (const std::int32_t* words = mask_words<Lane>(op.mask, op.mask_row, row)) {
      of.ids = array(t, 3);
      of.n = block_allowed(t, words, of.n, array(t, 3), t.shared<std::int32_t>());
      if (of.n == 0) return refuse(t, row, 4, 0.0f);
    }
    const auto sums = [&](const auto& z) { return block_log_sum(t, of.n, op.maximum_leaves, z, leaves); };
    const LogSum<Lane> raw = sums([&](std::int64_t i) { return of.raw(i); });
    if (!is_finite<Lane>(raw.log_sum)) return refuse(t, row, 3, raw.log_sum);
    LogSum<Lane> whole = raw;  // of z over all n
    if (of.adjusted != of.logits) {
      whole = sums([&](std::int64_t i) { return of.own(i); });
      if (!is_finite<Lane>(whole.log_sum)) return refuse(t, row, 3, whole.log_sum);
    }
    if (!(of.temperature > 0.0f)) {
      const std::int64_t index = first_where(t, of.n, [&](std::int64_t i) { return of.own(i) == whole.maximum; });
      const float logprob = of.raw(index) - raw.log_sum;
      tell_kept(t, row, of, nullptr, of.n);
      return put(t, row, of.id(index), logprob, logprob);
    }
    if (of.temperature != 1.0f) {
      whole = sums([&](std::int64_t i) { return of.z(i); });
      if (!is_finite<Lane>(whole.log_sum)) return refuse(t, row, 3, whole.log_sum);
    }
    const std::int32_t* seed = ints(op.seed) + row * op.seed.stride;
    const NoiseKey key{static_cast<std::uint32_t>(seed[0]) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(seed[1])) << 32,
                       static_cast<std::uint32_t>(ints(op.position)[row * op.position.stride]),
                       static_cast<std::uint32_t>(ints(op.sample)[row * op.sample.stride]),
                       op.stream ? static_cast<std::uint32_t>(ints(op.stream)[row * op.stream.stride]) : static_cast<std::uint32_t>(RandomStream::sampling)};
    const std::int32_t chosen = op.chosen ? ints(op.chosen)[row * op.chosen.stride] : -1;
    const std::int32_t top_k = ints(op.top_k)[row * op.top_k.stride];
    const float top_p = floats(op.top_p)[row * op.top_p.stride], min_p = op.min_p ? floats(op.min_p)[row * op.min_p.stride] : 0.0f;
    const std::int64_t ranks = top_k > 0 && top_k < of.n ? top_k : of.n;
    std::int64_t index;
    float sampling_sum = whole.log_sum;
    if (ranks == of.n && !(top_p < 1.0f) && !(min_p > 0.0f)) {
      index = draw(t, of, of.n, nullptr, key);
      tell_kept(t, row, of, nullptr, of.n);
    } else {
      index = draw_kept(t, row, of, ranks, top_p, min_p, key, sampling_sum);
    }
    if (chosen >= 0) index = first_where(t, of.n, [&](std::int64_t i) { return of.id(i) == chosen; });
    put(t, row, of.id(index), of.raw(index) - raw.log_sum, of.z(index) - sampling_sum);
  }

  // The first of n for which is(i), or n.
  template <class Is>
  LOCKSTEP_DEVICE std::int64_t first_where(const Thread& t, std::int64_t n, const Is& is) const {
    std::int64_t i = t.index();
    while (i < n && !is(i)) i += t.count();
    return least_of_block(t, i < n ? i : n, t.shared<std::int64_t>());
  }

  // Filters to top-k, top-p and min-p, and draws from what is left; sampling_sum becomes the log of its sum where that is not all.
  LOCKSTEP_DEVICE std::int64_t draw_kept(const Thread& t, std::int64_t row, const SampledRow& of, std::int64_t ranks, float top_p, float min_p,
                                         const NoiseKey& key, float& sampling_sum) const {
    const std::int32_t* order = rank_indices(
        t, of.n, ranks, [&](std::int64_t i) { return descending_key<Lane>(of.z(i)); }, array(t, 0), array(t, 1), t.shared<std::int32_t>());
    const float largest = of.z(order[0]);
    float* running = reinterpret_cast<float*>(array(t, 2));  // exp(z - max), then its chain up to and with each rank
    for (std::int64_t i = t.index(); i < ranks; i += t.count()) running[i] = exp_of(of.z(order[i]) - largest);
    t.sync();
    const std::int64_t likely = first_where(t, ranks, [&](std::int64_t i) { return i > 0 && running[i] < min_p; });
    if (t.index() == 0) {
      float sum = 0.0f;
      for (std::int64_t i = 0; i < ranks; ++i) running[i] = sum = sum + running[i];
    }
    t.sync();
    std::int64_t kept = ranks;
    if (top_p < 1.0f) {
      const float enough = top_p * running[ranks - 1];
      kept = 1 + first_where(t, ranks, [&](std::int64_t i) { return !(running[i] < enough); });
    }
    if (likely < kept) kept = likely;
    if (kept < of.n) sampling_sum = largest + log_of(running[kept - 1]);
    tell_kept(t, row, of, order, kept);
    return draw(t, of, kept, order, key);
  }

  // Tells which tokens could have been drawn (Sample::kept): those of `count` indices `order`, or, where it is null, all of the row.
  LOCKSTEP_DEVICE void tell_kept(const Thread& t, std::int64_t row, const SampledRow& of, const std::int32_t* order, std::int64_t count) const {
    const std::int32_t at = op.kept ? ints(op.kept_row)[row * op.kept_row.stride] : -1;
    if (at < 0) return;
    const std::int64_t vocabulary = op.logits.cols, width = (vocabulary + 31) / 32;
    std::int32_t *out = ints(op.kept) + at * op.kept.stride, *words = out + 2;
    const int form = count == vocabulary ? 0 : count == of.n ? 1 : 2;
    if (t.index() == 0) out[0] = form, out[1] = static_cast<std::int32_t>(count);
    if (form == 0) return;
    const auto id = [&](std::int64_t i) { return of.id(order ? order[i] : i); };
    if (count > width) {
      // Each thread has words of its own; it looks at all tokens, since no atomics are needed that way.
      for (std::int64_t w = t.index(); w < width; w += t.count()) words[w] = 0;
      t.sync();
      for (std::int64_t i = 0; i < count; ++i)
        if (const std::int64_t own = id(i); own / 32 % t.count() == t.index()) words[own / 32] |= static_cast<std::int32_t>(1u << (own % 32));
    } else {
      for (std::int64_t i = t.index(); i < count; i += t.count()) {  // the place of an id is how many are lower
        std::int64_t place = i;
        if (order) place = 0;
        for (std::int64_t j = 0; order && j < count; ++j) place += id(j) < id(i);
        words[place] = static_cast<std::int32_t>(id(i));
      }
    }
    t.sync();
  }

  // Arg-max of z + g over `count` tokens, those of `order` or, where it is null, all; ties to the lower index. Rounding is monotone and no noise exceeds
  // `largest`, so a token whose z + largest is below this thread's best cannot win and needs no noise.
  LOCKSTEP_DEVICE std::int64_t draw(const Thread& t, const SampledRow& of, std::int64_t count, const std::int32_t* order, const NoiseKey& key) const {
    const float largest = largest_noise<Lane>();
    BestToken best;
    const auto consider = [&](std::int64_t index, std::uint32_t word) {
      const BestToken one{of.z(index) + gumbel_of(Lane{noise_uniform<Lane>(word)}).x, static_cast<std::int32_t>(index)};
      if (goes_before<Lane>(one, best)) best = one;
    };
    const auto hopeless = [&](std::int64_t index) { return best.id >= 0 && of.z(index) + largest < best.score; };
    if (order || of.ids) {
      for (std::int64_t i = t.index(); i < count; i += t.count()) {
        const std::int64_t index = order ? order[i] : i;
        if (hopeless(index)) continue;
        const auto id = static_cast<std::uint32_t>(of.id(index));
        consider(index, noise_words<Lane>(key, id / 4)[id % 4]);
      }
    } else {
      for (std::int64_t quad = t.index(); quad * 4 < count; quad += t.count()) {  // four tokens share their words
        const std::int64_t end = quad * 4 + 4 < count ? quad * 4 + 4 : count;
        bool all_hopeless = true;
        for (std::int64_t i = quad * 4; i < end; ++i) all_hopeless = all_hopeless && hopeless(i);
        if (all_hopeless) continue;
        const Philox::Words words = noise_words<Lane>(key, static_cast<std::uint32_t>(quad));
        for (std::int64_t i = quad * 4; i < end; ++i) consider(i, words[static_cast<std::size_t>(i % 4)]);
      }
    }
    return first_of_block(t, best, t.shared<BestToken>(), [](const BestToken& a, const BestToken& b) { return goes_before<Lane>(a, b); }).id;
  }
};
}  // namespace

void launch(const Sample& op, Grid& grid) {
  const std::int64_t rows = op.logits.rows, a_row = SampleBody::kArrays * op.logits.cols;
  const std::int64_t room = kSampleScratch / (a_row * static_cast<std::int64_t>(sizeof(std::int32_t)) + 1), most = room < 1 ? 1 : room;
  const std::int64_t blocks = rows < most ? rows : most;
  grid.run(blocks, kBlockThreads, SampleBody{op, grid.scratch<std::int32_t>(0, blocks * a_row)}, SampleBody::kSharedBytes);
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
